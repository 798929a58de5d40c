//! What may stand before the first frame: the bootstrap's own command.
//!
//! After a silence the client also types the command, for a start-up file that runs another shell. Where the login was
//! only slow, nobody has read that line by the time the helper runs, and it lies in front of the frames.

/// How the typed command begins.
const TYPED: &[u8] = b"sh -c '";
/// The longest line that is taken for it; login shells bound the command itself.
const LINE_BYTES_MAX: usize = 4 << 10;

/// Takes the typed command off the input; pure.
#[derive(Debug, Default)]
pub(crate) struct Preamble {
    held: Vec<u8>,
    is_over: bool,
}

impl Preamble {
    /// Whether all input is frames from now on.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Takes input and gives what of it belongs to frames; nothing while that can't be told yet.
    pub(crate) fn strip(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let may_be_typed = self.held.iter().zip(TYPED).all(|(byte, typed)| byte == typed);
        let end = self.held.iter().take(LINE_BYTES_MAX).position(|byte| *byte == b'\n');
        match end {
            Some(end) if may_be_typed => {
                self.is_over = true;
                self.held.split_off(end + 1)
            }
            None if may_be_typed && self.held.len() < LINE_BYTES_MAX => Vec::new(),
            _ => {
                self.is_over = true;
                std::mem::take(&mut self.held)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames that come of `input`, cut into pieces of `size` bytes.
    fn frames(input: &[u8], size: usize) -> Vec<u8> {
        let mut preamble = Preamble::default();
        input
            .chunks(size)
            .flat_map(|piece| if preamble.is_over() { piece.to_vec() } else { preamble.strip(piece) })
            .collect()
    }

    #[test]
    fn the_typed_command_is_taken_off_once_however_it_is_cut() {
        for size in [1, 3, 1000] {
            assert_eq!(frames(b"TLN1 frames\n", size), b"TLN1 frames\n");
            assert_eq!(frames(b"sh -c 'x' towline a b\nTLN1 frames\n", size), b"TLN1 frames\n");
            assert_eq!(frames(b"sh -c 'x'\nsh -c 'x'\n", size), b"sh -c 'x'\n");
            assert_eq!(frames(b"sh -d\nTLN1", size), b"sh -d\nTLN1");
        }
    }

    #[test]
    fn a_line_without_end_is_no_command() {
        let line = [TYPED, &[b'.'; LINE_BYTES_MAX]].concat();
        assert_eq!(frames(&line, 100), line);
    }
}
