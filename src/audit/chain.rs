//! The chain as bytes: where it ends, and whether it holds. No files, no clock.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::entry::{Line, Tip, decode};

/// A line of one of the files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1.
    pub line: u64,
}

/// The first place where the chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Number of the last line before it that holds.
    pub after_seq: u64,
    /// What is wrong there.
    pub reason: String,
}

/// What a check of the whole chain found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether the chain holds.
    pub ok: bool,
    /// Whole lines.
    pub entries: u64,
    /// Files.
    pub files: u64,
    /// Number of the first line; above 1 where older files have been rotated away.
    pub first_seq: Option<u64>,
    /// Number of the last line.
    pub last_seq: Option<u64>,
    /// Lines that a crash tore; the chain goes on behind them.
    pub torn: Vec<Place>,
    /// The first place where the chain does not hold.
    pub broken: Option<Broken>,
}

/// The end of a file: the last whole line, and what stands behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    /// The last whole line of the bytes; none where there is none.
    pub(super) tip: Option<Tip>,
    /// Bytes behind it that are no whole line.
    pub(super) damaged: Vec<u8>,
    /// Whether a line end is missing before the next line.
    pub(super) unterminated: bool,
}

/// Finds the end of a chain in the last bytes of a file.
pub(super) fn end_of(bytes: &[u8]) -> End {
    let unterminated = bytes.last().is_some_and(|byte| *byte != b'\n');
    let mut end = bytes.len();
    loop {
        let whole = bytes.get(..end).unwrap_or_default();
        let text = whole.strip_suffix(b"\n").unwrap_or(whole);
        let begin = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if let Some(line) = text.get(begin..).and_then(decode) {
            let damaged = bytes.get(end..).unwrap_or_default().to_vec();
            return End { tip: Some(Tip { seq: line.seq, hash: line.hash }), damaged, unterminated };
        }
        if begin == 0 {
            return End { tip: None, damaged: bytes.to_vec(), unterminated };
        }
        end = begin;
    }
}

/// Checks a chain line by line, oldest first.
#[derive(Debug, Default)]
pub(super) struct Checker {
    tip: Option<Tip>,
    damaged: Vec<u8>,
    damaged_at: Option<Place>,
    damaged_lines: u64,
    report: Report,
}

impl Checker {
    /// Begins the next file.
    pub(super) fn file(&mut self) {
        self.report.files += 1;
    }

    /// Takes the next line, with its line end if it has one.
    pub(super) fn line(&mut self, file: &Path, number: u64, bytes: &[u8]) {
        let place = || Place { file: file.to_owned(), line: number };
        match decode(bytes.strip_suffix(b"\n").unwrap_or(bytes)) {
            Some(line) => {
                self.whole(&line, place());
                self.report.entries += 1;
                self.report.first_seq.get_or_insert(line.seq);
                self.report.last_seq = Some(line.seq);
                self.tip = Some(Tip { seq: line.seq, hash: line.hash });
            }
            None => {
                self.damaged.extend_from_slice(bytes);
                self.damaged_at.get_or_insert_with(place);
                self.damaged_lines += 1;
            }
        }
    }

    /// Ends the check; `files_max` is how many files rotation keeps.
    pub(super) fn finish(mut self, files_max: u64) -> Report {
        if let Some(place) = self.damaged_at.take() {
            // The last line may be one that a crash has torn just now, or that is being written.
            if self.damaged_lines == 1 && !self.damaged.ends_with(b"\n") {
                self.report.torn.push(place);
            } else {
                self.broken(place, "the line is no entry, or not the one that was written".to_owned());
            }
        }
        // Rotation may have been stopped half-way, so one file fewer is no sign of anything.
        let rotated = self.report.files + 1 >= files_max;
        if self.report.broken.is_none() && !rotated && self.report.first_seq.is_some_and(|first| first > 1) {
            let place = Place { file: PathBuf::from(super::FILE), line: 1 };
            self.broken(place, "the lines before the first one are missing".to_owned());
        }
        self.report.ok = self.report.broken.is_none();
        self.report
    }

    fn whole(&mut self, line: &Line, place: Place) {
        let tip = match &self.tip {
            Some(tip) => tip.clone(),
            // The chain begins here, or what was before it has been rotated away.
            None if line.seq > 1 && self.damaged_at.is_none() => {
                Tip { seq: line.seq - 1, hash: line.prev.clone() }
            }
            None => Tip::beginning(),
        };
        let damaged = std::mem::take(&mut self.damaged);
        let lines = std::mem::take(&mut self.damaged_lines);
        let Some(damaged_at) = self.damaged_at.take() else {
            if line.prev != tip.hash {
                self.broken(place, "the line does not name the hash of the line before".to_owned());
            } else if line.seq != tip.seq + 1 {
                self.broken(place, format!("the line's number is {}, not {}", line.seq, tip.seq + 1));
            }
            return;
        };
        // Whoever sealed a torn line saw it without a line end, and added one.
        let torn = damaged.strip_suffix(b"\n").unwrap_or(&damaged);
        if lines == 1 && line.prev == tip.sealing(torn) && line.seq == tip.seq + 1 {
            self.report.torn.push(damaged_at);
        } else {
            self.broken(damaged_at, "the line is no entry, or not the one that was written".to_owned());
        }
    }

    fn broken(&mut self, place: Place, reason: String) {
        let after_seq = self.tip.as_ref().map_or(0, |tip| tip.seq);
        self.report.broken.get_or_insert(Broken { place, after_seq, reason });
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, What, Who, encode};
    use super::*;
    use proptest::prelude::*;

    fn entry() -> Entry {
        let who = Who { pid: 1, program: "p".to_owned(), client: "c".to_owned() };
        Entry { who, site: None, role: None, what: What::new("exec", "ls"), outcome: "ok".to_owned() }
    }

    fn lines(count: u64) -> Vec<Vec<u8>> {
        let mut tip = Tip::beginning();
        (0..count)
            .map(|_| {
                let (bytes, next) = encode(&entry(), tip.seq + 1, 0, &tip.hash).unwrap();
                tip = next;
                bytes
            })
            .collect()
    }

    fn check(bytes: &[u8]) -> Report {
        let mut checker = Checker::default();
        checker.file();
        for (index, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
            checker.line(Path::new("f"), index as u64 + 1, line);
        }
        checker.finish(8)
    }

    #[test]
    fn a_whole_chain_holds_and_an_empty_one_too() {
        assert!(check(b"").ok);
        let report = check(&lines(5).concat());
        assert!(report.ok && report.torn.is_empty());
        assert_eq!((report.entries, report.first_seq, report.last_seq), (5, Some(1), Some(5)));
    }

    #[test]
    fn a_removed_swapped_or_repeated_line_is_told_with_its_place() {
        let all = lines(5);
        for (edit, line) in
            [(vec![0, 1, 3, 4], 3), (vec![0, 2, 1, 3, 4], 2), (vec![0, 1, 1, 2], 3), (vec![1, 2], 1)]
        {
            let bytes = edit.iter().map(|index| all[*index].clone()).collect::<Vec<_>>().concat();
            let report = check(&bytes);
            assert!(!report.ok);
            assert_eq!(report.broken.unwrap().place.line, line, "{edit:?}");
        }
    }

    #[test]
    fn a_line_torn_at_any_byte_is_sealed_and_the_chain_goes_on() {
        let all = lines(3);
        for cut in 1..all[2].len() {
            let mut bytes = [&all[0][..], &all[1], &all[2][..cut]].concat();
            let end = end_of(&bytes);
            assert!(end.unterminated);
            if cut == all[2].len() - 1 {
                // Only the line end is missing: the line is whole.
                assert_eq!((end.tip.unwrap().seq, end.damaged.len()), (3, 0));
                continue;
            }
            assert!(check(&bytes).ok, "the torn tail alone is an accident");
            let tip = end.tip.unwrap();
            assert_eq!((tip.seq, &end.damaged[..]), (2, &all[2][..cut]));
            bytes.push(b'\n');
            let (seal, after) = encode(&entry(), 3, 0, &tip.sealing(&end.damaged)).unwrap();
            bytes.extend(seal);
            bytes.extend(encode(&entry(), 4, 0, &after.hash).unwrap().0);
            let report = check(&bytes);
            assert!(report.ok, "{cut}: {report:?}");
            assert_eq!((report.torn[0].line, report.entries), (3, 4));
        }
    }

    #[test]
    fn a_changed_last_line_stays_told_even_when_it_is_sealed() {
        let all = lines(2);
        let mut bytes = all.concat();
        let at = bytes.len() - 100;
        bytes[at] ^= 1;
        assert!(!check(&bytes).ok);
        let end = end_of(&bytes);
        let (seal, _) = encode(&entry(), 2, 0, &end.tip.unwrap().sealing(&end.damaged)).unwrap();
        bytes.extend(seal);
        let report = check(&bytes);
        assert_eq!(report.broken.unwrap().place.line, 2);
    }

    proptest! {
        #[test]
        fn a_changed_byte_anywhere_breaks_the_chain(count in 1_u64..6, at in 0_usize..10_000, bit in 0_u8..8) {
            let mut bytes = lines(count).concat();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let report = check(&bytes);
            // A last line end that became another byte looks just as a crash does.
            prop_assert!(!report.ok || (at == bytes.len() - 1 && report.torn.len() == 1), "{:?}", report);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            end_of(&bytes);
            check(&bytes);
        }
    }
}
