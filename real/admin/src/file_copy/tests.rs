//! Tests of copies between paths of this machine. Between mounts and file systems of arrays, process tests copy.

use super::{CopyProgress, Place, copy};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("braid-copy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("it is new");
        Scratch(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The code of the failure; empty if there is none.
fn copied(from: &Path, to: &Path, recursive: bool) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it starts");
    let place = |path: &Path| Place::Local(path.to_path_buf());
    let outcome = runtime.block_on(copy(place(from), place(to), recursive, Arc::<CopyProgress>::default()));
    outcome.err().map(|failure| failure.code).unwrap_or_default()
}

#[test]
fn a_file_is_never_its_own_copy() {
    let scratch = Scratch::new("itself");
    let [file, link, name] = ["file", "link", "name"].map(|name| scratch.path(name));
    fs::write(&file, "content").expect("it is written");
    std::os::unix::fs::symlink(&file, &link).expect("it is new");
    fs::hard_link(&file, &name).expect("it is new");
    for other in [&file, &link, &name] {
        assert_eq!(copied(&file, other, false), "same-file");
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "content");
    }
    fs::create_dir_all(scratch.path("d/e")).expect("it is new");
    for into in ["d", "d/e", "d/e/f", "d/../d/f"] {
        assert_eq!(copied(&scratch.path("d"), &scratch.path(into), true), "into-itself", "{into}");
    }
    assert_eq!(fs::read_dir(scratch.path("d/e")).expect("it is there").count(), 0);
    for missing in ["no/file", "no/", "no/no/file"] {
        assert_eq!(copied(&file, &scratch.path(missing), false), "no-such-file", "{missing}");
    }
}

#[test]
fn a_copy_leaves_out_itself_as_shown_by_a_mount_and_nothing_else() {
    let scratch = Scratch::new("bound");
    for name in ["a", "b", "c", "inner/itself", "target"] {
        fs::create_dir_all(scratch.path("from").join(name)).expect("it is new");
        fs::write(scratch.path("from").join(name).join("file"), name).expect("it is written");
    }
    fs::create_dir_all(scratch.path("to/from/b")).expect("it is new");
    let run = |program: &str, more: &[PathBuf]| {
        std::process::Command::new(program).args(more).status().is_ok_and(|status| status.success())
    };
    let [target, to, b] = ["from/target", "to", "to/from/b"].map(|name| scratch.path(name));
    // The source contains the target; and a directory of the target is one of the source.
    for (bound, at) in [(&to, &target), (&scratch.path("from/b"), &b)] {
        if !run("mount", &["--bind".into(), bound.clone(), at.clone()]) {
            eprintln!("skipped: only root can mount");
            return;
        }
    }
    assert_eq!(copied(&scratch.path("from"), &to, true), "into-itself");
    for name in ["a", "b", "c", "inner/itself"] {
        assert_eq!(fs::read_to_string(to.join("from").join(name).join("file")).ok().as_deref(), Some(name));
    }
    assert!(run("umount", &[b]) && run("umount", &[target]));
}

#[test]
fn a_file_that_becomes_shorter_while_it_is_copied_is_named() {
    let scratch = Scratch::new("shorter");
    for name in ["from", "to/from"] {
        fs::create_dir_all(scratch.path(name)).expect("it is new");
    }
    let [long, other, pipe] = ["from/long", "from/other", "to/from/long"].map(|name| scratch.path(name));
    fs::write(&other, "some").expect("it is written");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("there is mkfifo").success());
    // The copy waits while nobody reads from the pipe: then it has read a part of the file.
    let copy = |length: u64, [from, to]: [&Path; 2]| {
        fs::write(&long, vec![7; 32 << 20]).expect("it is written");
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut reader = File::open(&pipe).expect("it is there");
                std::io::copy(&mut (&mut reader).take(1), &mut std::io::sink()).expect("the copy writes");
                let file = File::options().write(true).open(&long).expect("it is there");
                file.set_len(length).expect("it is cut");
                std::io::copy(&mut reader, &mut std::io::sink()).expect("the copy writes")
            });
            let code = copied(from, to, true);
            (code, reader.join().expect("it has read") + 1)
        })
    };
    let [from, to] = ["from", "to"].map(|name| scratch.path(name));
    assert_eq!(copy(32 << 20, [&long, &pipe]), (String::new(), 32 << 20));
    let (code, bytes) = copy(1 << 20, [&long, &pipe]);
    assert!(code == "became-shorter" && bytes < 32 << 20, "{code} {bytes}");
    let (code, bytes) = copy(1 << 20, [&from, &to]);
    assert!(code == "became-shorter" && bytes < 32 << 20, "{code} {bytes}");
    assert_eq!(fs::read_to_string(scratch.path("to/from/other")).expect("everything else is copied"), "some");
    // It says that it has 4096 bytes.
    let of_system = Path::new("/sys/devices/system/cpu/online");
    assert!(!of_system.exists() || copied(of_system, &scratch.path("online"), false).is_empty());
}

#[test]
fn a_copy_has_the_bytes_and_the_holes_of_its_source() {
    let scratch = Scratch::new("holes");
    let [sparse, other] = ["sparse", "other"].map(|name| scratch.path(name));
    let file = File::create(&sparse).expect("it is new");
    for (offset, byte) in [(0, 1), (1 << 20, 2), (9 << 20, 3)] {
        file.write_all_at(&[byte; 4096], offset).expect("it is written");
    }
    file.set_len(16 << 20).expect("it grows");
    let allocated = |path: &Path| fs::metadata(path).expect("it is there").blocks() * 512;
    if allocated(&sparse) > 1 << 20 {
        eprintln!("skipped: the file system has no holes");
        return;
    }
    // Nothing; a longer file; one that could be the source under another name, but has other bytes where the source has holes.
    for before in [None, Some(20 << 20), Some(16 << 20)] {
        let _ = fs::remove_file(&other);
        if let Some(length) = before {
            fs::write(&other, vec![7; length]).expect("it is written");
        }
        assert_eq!(copied(&sparse, &other, false), "");
        assert!(fs::read(&sparse).expect("it is read") == fs::read(&other).expect("it is read"), "{before:?}");
        let could_be_the_source = before == Some(16 << 20);
        assert!(could_be_the_source || allocated(&other) <= allocated(&sparse), "{before:?}");
    }
}
