//! Mounting where it is impossible, and unmounting.

use crate::memory::Memory;
use crate::{Mounted, empty_directory, mounted};
use braid_fuse::{MountError, mount};
use braid_wire::Owner;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn a_mount_says_what_it_is() {
    let Some(mounted) = Mounted::new() else { return };
    let mounts = fs::read_to_string("/proc/self/mounts").expect("it can be read");
    let directory = mounted.directory.to_str().expect("text");
    let own = mounts.lines().find(|line| line.split(' ').nth(1) == Some(directory)).expect("it is mounted");
    let begins = format!("braid:test {directory} fuse.braid rw,");
    assert!(own.starts_with(&begins), "{own}");
    assert!(own.contains("default_permissions"), "{own}");
}

#[test]
fn after_unmounting_the_directory_is_as_before() {
    let Some(mut mounted) = Mounted::new() else { return };
    fs::write(mounted.path("file"), b"content").expect("it is written");
    let begun = Instant::now();
    mounted.stop().expect("it is served to its end");
    assert!(begun.elapsed() < Duration::from_secs(4), "nobody uses it: there is nothing to wait for");
    assert_eq!(fs::read_dir(&mounted.directory).expect("it can be listed").count(), 0);
}

#[test]
fn a_file_that_is_open_does_not_keep_the_file_system_mounted() {
    let Some(mut mounted) = Mounted::new() else { return };
    let mut file = File::create(mounted.path("file")).expect("it is created");
    file.write_all(b"content").expect("it is written");
    mounted.stop().expect("it is served to its end");
    assert_eq!(fs::read_dir(&mounted.directory).expect("it can be listed").count(), 0);
    assert!(file.write_all(b"more").is_err(), "nobody serves it");
}

#[test]
fn a_mount_that_others_unmount_ends() {
    let Some(mut mounted) = Mounted::new() else { return };
    rustix::mount::unmount(&mounted.directory, rustix::mount::UnmountFlags::empty()).expect("nobody uses it");
    let thread = mounted.thread.take().expect("it runs");
    thread.join().expect("the loop does not panic").expect("the end of a mount is no error");
}

#[test]
fn a_mount_that_never_ran_is_unmounted() {
    let directory = empty_directory();
    let Some((mount, ..)) = mounted(&directory) else { return };
    drop(mount);
    fs::remove_dir(&directory).expect("nothing is mounted");
}

#[test]
fn what_can_not_be_mounted_is_refused() {
    let Some(mounted) = Mounted::new() else { return };
    let refused = |directory: &Path, name: &str| {
        mount(directory, name, Memory::new(Owner::default())).map(drop).expect_err("it can't be mounted")
    };
    assert!(matches!(refused(&mounted.directory, "test"), MountError::InUse { .. }));
    assert!(matches!(refused(&mounted.path("nowhere"), "test"), MountError::NoDirectory { .. }));
    fs::write(mounted.path("file"), b"").expect("it is written");
    assert!(matches!(refused(&mounted.path("file"), "test"), MountError::NotADirectory { .. }));
    assert!(matches!(refused(&mounted.path("file/below"), "test"), MountError::NotADirectory { .. }));
    for name in ["", "a,b", "a b", "a\n", "ä"] {
        assert!(matches!(refused(&mounted.directory, name), MountError::InvalidName { .. }), "{name}");
    }
}
