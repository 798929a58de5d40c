use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use towline_helper::wire::frame::{
    CHANNEL_MASK, Decoder, FLAG_ACK, FLAG_END, HEADER_BYTES, MAGIC, encode_header, encode_parts, parse_header,
};
use towline_helper::wire::{Frame, FrameError, Kind};

fn flags_of(kind: Kind) -> u8 {
    match kind {
        Kind::Data => FLAG_END | FLAG_ACK | CHANNEL_MASK,
        Kind::Credit => CHANNEL_MASK,
        _ => 0,
    }
}

/// Payload sizes with the edges of each kind's bounds, and now and then a really long one.
fn any_length(kind: Kind) -> BoxedStrategy<usize> {
    let (least, most) = kind.payload_bounds();
    prop_oneof![3 => Just(least), 1 => Just(most), 20 => least..=most.min(least + 300), 2 => least..=most]
        .boxed()
}

fn any_frame() -> impl Strategy<Value = Frame> {
    select(Kind::ALL.to_vec()).prop_flat_map(|kind| {
        let stream = if kind.is_of_the_line() {
            Just(0).boxed()
        } else {
            prop_oneof![1 => Just(1), 1 => Just(u32::MAX), 5 => 1..=u32::MAX].boxed()
        };
        (any::<u8>(), stream, any_length(kind), any::<u8>()).prop_map(move |(flags, stream, length, seed)| {
            let payload = (0..length).map(|place| (place as u8).wrapping_mul(seed)).collect();
            Frame { kind, flags: flags & flags_of(kind), stream, payload }
        })
    })
}

fn encoded(frames: &[Frame]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        frame.encode(&mut bytes).unwrap();
    }
    bytes
}

/// Decodes pieces, and checks that nothing is left over.
fn decoded<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Result<Vec<Frame>, FrameError> {
    let (mut decoder, mut frames) = (Decoder::default(), Vec::new());
    for mut piece in pieces {
        while let Some(frame) = decoder.next_frame(&mut piece)? {
            frames.push(frame);
        }
        assert!(piece.is_empty(), "the decoder takes all that it is given");
    }
    assert!(decoder.is_between_frames());
    Ok(frames)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_encoded_is_decoded_whatever_pieces_it_comes_in(
        frames in vec(any_frame(), 0..6),
        cuts in vec(any::<Index>(), 0..12),
    ) {
        let bytes = encoded(&frames);
        prop_assert_eq!(&decoded([bytes.as_slice()]).unwrap(), &frames);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        prop_assert_eq!(decoded(pieces).unwrap(), frames);
    }

    #[test]
    fn a_header_that_is_read_is_the_one_that_was_written(frame in any_frame()) {
        let length = frame.payload.len();
        let header = parse_header(&encode_header(frame.kind, frame.flags, frame.stream, length as u32)).unwrap();
        prop_assert_eq!((header.kind, header.flags), (frame.kind, frame.flags));
        prop_assert_eq!((header.stream, header.length), (frame.stream, length));
    }

    /// Valid bytes, then one changed bit of a header, then valid ones again: all before it is delivered, nothing after.
    #[test]
    fn a_changed_header_is_another_legal_one_or_ends_the_line_for_good(
        before in vec(any_frame(), 0..3),
        frame in any_frame(),
        bit in 0..HEADER_BYTES * 8,
    ) {
        let mut bytes = encoded(std::slice::from_ref(&frame));
        bytes[bit / 8] ^= 1 << (bit % 8);
        let header: [u8; HEADER_BYTES] = bytes[..HEADER_BYTES].try_into().unwrap();
        let start = encoded(&before);
        let mut decoder = Decoder::default();
        let mut input = start.as_slice();
        for frame in &before {
            prop_assert_eq!(&decoder.next_frame(&mut input).unwrap().unwrap(), frame);
        }
        let mut input = bytes.as_slice();
        match (parse_header(&header), decoder.next_frame(&mut input)) {
            (Err(expected), Err(error)) => {
                prop_assert_eq!(&expected, &error);
                let good = encoded(&before);
                prop_assert_eq!(decoder.next_frame(&mut good.as_slice()), Err(error));
            }
            (Ok(header), Ok(Some(other))) => {
                prop_assert_ne!(&other, &frame);
                prop_assert_eq!((other.kind, other.payload.len()), (header.kind, header.length));
            }
            (Ok(header), Ok(None)) => prop_assert!(header.length > frame.payload.len()),
            (header, got) => prop_assert!(false, "{header:?} but {got:?}"),
        }
    }

    #[test]
    fn no_input_panics_and_all_of_a_refusal_is_the_first_bad_header(bytes in vec(any::<u8>(), 0..300), magic: bool) {
        let bytes = if magic { [&MAGIC[..], &bytes].concat() } else { bytes };
        let mut decoder = Decoder::default();
        let mut input = bytes.as_slice();
        while let Ok(Some(_)) = decoder.next_frame(&mut input) {}
    }
}

fn header(kind: u8, flags: u8, reserved: [u8; 2], stream: u32, length: u32) -> [u8; HEADER_BYTES] {
    let mut header = encode_header(Kind::Data, flags, stream, length);
    header[4] = kind;
    header[6..8].copy_from_slice(&reserved);
    header
}

#[test]
fn each_field_out_of_bounds_has_its_own_error() {
    let data = Kind::Data as u8;
    let mut no_magic = header(data, 0, [0; 2], 1, 1);
    no_magic[3] = b'2';
    assert_eq!(parse_header(&no_magic), Err(FrameError::Magic(*b"TLN2")));
    for kind in (0..=u8::MAX).filter(|byte| Kind::ALL.iter().all(|kind| *kind as u8 != *byte)) {
        assert_eq!(parse_header(&header(kind, 0, [0; 2], 1, 8)), Err(FrameError::Kind(kind)));
    }
    for kind in Kind::ALL {
        let (least, most) = kind.payload_bounds();
        let stream = u32::from(!kind.is_of_the_line());
        let good = |flags, length| header(kind as u8, flags, [0; 2], stream, length);
        for length in [least, most] {
            assert!(parse_header(&good(flags_of(kind), length as u32)).is_ok());
        }
        for flags in (0..8).map(|bit| 1 << bit).filter(|flag| flags_of(kind) & flag == 0) {
            let error = FrameError::Reserved { kind, flags, reserved: 0 };
            assert_eq!(parse_header(&good(flags, least as u32)), Err(error));
        }
        for reserved in [[0, 1], [0x80, 0]] {
            let error = FrameError::Reserved { kind, flags: 0, reserved: u16::from_be_bytes(reserved) };
            let header = header(kind as u8, 0, reserved, stream, least as u32);
            assert_eq!(parse_header(&header), Err(error));
        }
        let header = header(kind as u8, 0, [0; 2], 1 - stream, least as u32);
        assert_eq!(parse_header(&header), Err(FrameError::Stream { kind, stream: 1 - stream }));
        for length in [least.wrapping_sub(1), most + 1, u32::MAX as usize] {
            if length > most || length < least {
                let length = length as u32;
                let error = FrameError::Length { kind, length: length as usize, least, most };
                assert_eq!(parse_header(&good(0, length)), Err(error));
            }
        }
    }
}

#[test]
fn a_payload_out_of_bounds_is_not_encoded() {
    for kind in Kind::ALL {
        let (least, most) = kind.payload_bounds();
        for length in [least.checked_sub(1), Some(most + 1)].into_iter().flatten() {
            let mut out = vec![7];
            let error = encode_parts(kind, 0, 1, &vec![0; length], &mut out).unwrap_err();
            assert_eq!(error, FrameError::Length { kind, length, least, most });
            assert_eq!(out, [7], "nothing is left of a frame that failed");
        }
    }
}
