use super::*;
use crate::disk::faulty::{Faulty, Wrong};
use crate::disk::{Files, System};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};
use std::time::Duration;

fn system() -> Arc<dyn Files> {
    Arc::new(System)
}

fn scratch() -> tempfile::TempDir {
    let mode = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(mode).tempdir().unwrap()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn an_object_of_another_owner_type_or_mode_is_not_ours() {
    let facts =
        Facts { kind: FileKind::Regular, uid: 7, mode: 0o600, identity: (1, 1), size: 0, modified_ms: 0 };
    let judged = |facts: Facts| judge_for(7, Path::new("/f"), &facts, FileKind::Regular).is_ok();
    for mode in [0o600, 0o400, 0o700] {
        assert!(judged(Facts { mode, ..facts }), "{mode:o}");
    }
    for mode in [0o640, 0o604, 0o610, 0o601, 0o620, 0o602] {
        assert!(!judged(Facts { mode, ..facts }), "{mode:o}");
    }
    assert!(!judged(Facts { uid: 0, ..facts }) && !judged(Facts { uid: 8, ..facts }));
    for kind in [FileKind::Directory, FileKind::Link, FileKind::Other] {
        assert!(!judged(Facts { kind, ..facts }));
    }
}

#[test]
fn a_directory_above_must_be_roots_or_ours_and_closed_or_sticky() {
    let facts =
        |uid, mode| Facts { kind: FileKind::Directory, uid, mode, identity: (1, 1), size: 0, modified_ms: 0 };
    for (uid, mode, right) in [
        (0, 0o755, true),
        (7, 0o755, true),
        (0, 0o1777, true),
        (8, 0o755, false),
        (0, 0o777, false),
        (7, 0o775, false),
        (7, 0o757, false),
    ] {
        assert_eq!(judge_above(7, Path::new("/a"), &facts(uid, mode)).is_ok(), right, "{uid} {mode:o}");
    }
}

#[test]
fn a_folder_is_made_0700_and_an_open_or_linked_one_is_left_as_it_is() {
    let scratch = scratch();
    let path = scratch.path().join("a/b");
    assert!(Folder::open(system(), &path).unwrap_err().is_missing());
    Folder::make(system(), &path).unwrap();
    for made in [path.clone(), scratch.path().join("a")] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o7777, 0o700);
    }
    set_mode(&path, 0o750);
    assert!(matches!(Folder::make(system(), &path), Err(Fault::Unsafe { .. })));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o750);
    set_mode(&path, 0o700);
    let link = scratch.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(Folder::open(system(), &link), Err(Fault::Unsafe { .. })));
    // A link above is fine while nobody else can swap it or what it leads to.
    assert!(Folder::open(system(), &link.parent().unwrap().join("a/b")).is_ok());
    let above = scratch.path().join("above");
    symlink(scratch.path().join("a"), &above).unwrap();
    assert!(Folder::open(system(), &above.join("b")).is_ok());
    set_mode(&scratch.path().join("a"), 0o770);
    assert!(matches!(Folder::open(system(), &above.join("b")), Err(Fault::Unsafe { .. })));
}

#[test]
fn links_pipes_and_open_files_are_not_read() {
    let scratch = scratch();
    let folder = Folder::open(system(), scratch.path()).unwrap();
    fs::write(scratch.path().join("open"), "x").unwrap();
    set_mode(&scratch.path().join("open"), 0o644);
    symlink("open", scratch.path().join("link")).unwrap();
    fs::DirBuilder::new().mode(0o700).create(scratch.path().join("dir")).unwrap();
    nix::unistd::mkfifo(&scratch.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in ["open", "link", "dir", "pipe"] {
        assert!(matches!(folder.read(name, 10), Err(Fault::Unsafe { .. })), "{name}");
    }
    assert!(folder.read("none", 10).unwrap_err().is_missing());
    folder.replace("long", b"12345").unwrap();
    assert!(matches!(folder.read("long", 4), Err(Fault::TooLarge { limit: 4, .. })));
    assert_eq!(folder.read("long", 5).unwrap().0, b"12345");
}

#[test]
fn whatever_step_fails_a_replaced_file_is_the_old_or_the_new_one() {
    for wrong in Wrong::ALL {
        for at in 1.. {
            let scratch = scratch();
            Folder::open(system(), scratch.path()).unwrap().replace("f", b"old one").unwrap();
            let faulty = Arc::new(Faulty::new(at, wrong));
            let replaced = Folder::open(faulty.clone(), scratch.path())
                .and_then(|folder| folder.replace("f", b"new one"));
            let folder = Folder::open(system(), scratch.path()).unwrap();
            let (bytes, facts) = folder.read("f", 100).unwrap();
            assert!(bytes == b"old one" || bytes == b"new one", "{wrong:?} {at}: {bytes:?}");
            assert_eq!(facts.mode, 0o600);
            if replaced.is_ok() {
                assert_eq!(bytes, b"new one");
            }
            // A stray temporary file is in nobody's way.
            folder.replace("f", b"newest").unwrap();
            if !faulty.struck() {
                break;
            }
        }
    }
}

#[test]
fn a_lock_excludes_until_it_is_dropped_and_survives_a_swapped_file() {
    let scratch = scratch();
    let folder = Folder::open(system(), scratch.path()).unwrap();
    let wait = Duration::from_millis(20);
    let first = folder.lock("m", wait).unwrap();
    assert!(matches!(folder.lock("m", wait), Err(Fault::Busy { .. })));
    // A swapped file is another lock: whoever holds the old one holds nothing that others see.
    folder.remove("m").unwrap();
    let second = folder.lock("m", wait).unwrap();
    drop(first);
    assert!(matches!(folder.lock("m", wait), Err(Fault::Busy { .. })));
    drop(second);
    let locked = folder.lock("m", wait).unwrap();
    assert_eq!(locked.facts().mode, 0o600);
}

#[test]
fn of_several_removers_and_makers_one_wins() {
    let scratch = scratch();
    let folder = Folder::open(system(), scratch.path()).unwrap();
    assert!(folder.create("n", b"1").unwrap());
    assert!(!folder.create("n", b"2").unwrap());
    assert_eq!(folder.read("n", 9).unwrap().0, b"1");
    assert!(folder.remove("n").unwrap() && !folder.remove("n").unwrap());
    symlink("nowhere", scratch.path().join("l")).unwrap();
    assert!(!folder.create("l", b"2").unwrap());
}
