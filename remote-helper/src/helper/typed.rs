//! What a client may have typed at the login shell before the helper ran.
//!
//! A start-up file that runs another shell swallows the one exec request; after a silence the client therefore types
//! the same command on stdin. When the first request was only slow, that line is still there when the helper starts:
//! it begins with `sh -c '`, which no frame does, and is left out. All else is strict.

/// How every typed command begins.
const PREFIX: &[u8] = b"sh -c '";
/// Longest typed line.
const LINE_BYTES_MAX: usize = 8 << 10;

/// Looks at the first bytes of stdin.
#[derive(Debug, Default)]
pub(crate) enum Typed {
    /// At the beginning of a line, with too few bytes to tell.
    #[default]
    Unknown,
    /// Inside a typed line, with so many bytes left out.
    Inside(usize),
    /// Frames follow.
    Passed,
}

impl Typed {
    /// Returns what of the bytes belongs to the protocol, with those held back so far put in front.
    pub(crate) fn without<'a>(&mut self, bytes: &'a [u8], held: &'a mut Vec<u8>) -> &'a [u8] {
        if matches!(self, Typed::Passed) {
            return bytes;
        }
        held.extend_from_slice(bytes);
        loop {
            match self {
                Typed::Unknown => {
                    let known = held.len().min(PREFIX.len());
                    if held.get(..known) != PREFIX.get(..known) {
                        *self = Typed::Passed;
                        return held;
                    }
                    if known < PREFIX.len() {
                        return &[];
                    }
                    *self = Typed::Inside(0);
                }
                Typed::Inside(left_out) => match held.iter().position(|byte| *byte == b'\n') {
                    Some(end) => {
                        held.drain(..=end);
                        *self = Typed::Unknown;
                    }
                    None if *left_out + held.len() > LINE_BYTES_MAX => {
                        *self = Typed::Passed;
                        return held;
                    }
                    None => {
                        *left_out += held.len();
                        held.clear();
                        return &[];
                    }
                },
                Typed::Passed => return held,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes in pieces of `size`.
    fn passed(bytes: &[u8], size: usize) -> Vec<u8> {
        let mut typed = Typed::default();
        let mut all = Vec::new();
        let mut held = Vec::new();
        for piece in bytes.chunks(size) {
            let rest = typed.without(piece, &mut held).to_vec();
            if !rest.is_empty() {
                held.clear();
            }
            all.extend(rest);
        }
        all
    }

    #[test]
    fn typed_commands_are_left_out_and_frames_pass_whatever_the_pieces() {
        for size in [1, 3, 7, 100] {
            assert_eq!(passed(b"TLN1 frame", size), b"TLN1 frame");
            assert_eq!(passed(b"sh -c 'x' a b\nTLN1 frame", size), b"TLN1 frame");
            assert_eq!(passed(b"sh -c 'x'\nsh -c 'y'\nTLN1", size), b"TLN1");
            assert_eq!(
                passed(b"sh -x garbage\n", size),
                b"sh -x garbage\n",
                "only typed commands are left out"
            );
        }
    }

    #[test]
    fn a_typed_line_without_an_end_is_bounded() {
        let mut endless = PREFIX.to_vec();
        endless.resize(3 * LINE_BYTES_MAX, b'x');
        assert!(!passed(&endless, 1000).is_empty());
    }
}
