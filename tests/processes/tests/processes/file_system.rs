//! A file system on a volume, through nbdfuse and a loop device, with the commands of the README.

use crate::prelude::*;
use braid_processes::scratch::{Loop, Mount};

/// A volume as a file, until this is dropped.
struct Fuse {
    child: Child,
    mount: Option<Mount>,
}

impl Fuse {
    fn mount(uri: &str, scratch: &Scratch) -> Fuse {
        let place = scratch.path("fuse");
        std::fs::create_dir_all(&place).expect("a folder can be made");
        let ready = scratch.text("fuse.pid");
        let _ = std::fs::remove_file(&ready);
        let child = Command::new("nbdfuse").args(["--pidfile", &ready, path_text(&place), uri]).spawn();
        let mut fuse = Fuse { child: child.expect("nbdfuse: `cargo xtask test` installs it"), mount: None };
        wait_until("nbdfuse is ready", Duration::from_secs(20), || {
            assert!(matches!(fuse.child.try_wait(), Ok(None)), "nbdfuse has ended");
            Path::new(&ready).exists()
        });
        fuse.mount = Some(Mount::adopt(&place));
        fuse
    }

    fn unmount(mut self) {
        self.mount.take().expect("it is mounted").unmount();
        self.child.wait().expect("nbdfuse ends when it is unmounted");
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        drop(self.mount.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn ext4_keeps_a_tree_through_mounts_and_restarts() {
    let mut array = Array::small();
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join("core");
    {
        let fuse = Fuse::mount(&array.nbd(), array.scratch());
        let block = Loop::attach(&array.scratch().path("fuse/nbd"));
        tool("mkfs.ext4", &["-q", "-m", "0", &block.device]);
        let mount = Mount::new(&[], &block.device, &array.scratch().path("mnt"));
        for copy in ["one", "two"] {
            tool("cp", &["--archive", path_text(&tree), &array.scratch().text(&format!("mnt/{copy}"))]);
        }
        tool("rm", &["-r", &array.scratch().text("mnt/one")]);
        mount.unmount();
        check(&block);
        drop(block);
        fuse.unmount();
    }
    array.assert_sound("vol0");
    array.down();
    array.start(&[]);
    {
        let fuse = Fuse::mount(&array.nbd(), array.scratch());
        let block = Loop::attach(&array.scratch().path("fuse/nbd"));
        check(&block);
        let mount = Mount::new(&[], &block.device, &array.scratch().path("mnt"));
        tool("diff", &["--recursive", path_text(&tree), &array.scratch().text("mnt/two")]);
        assert!(!array.scratch().path("mnt/one").exists());
        mount.unmount();
        drop(block);
        fuse.unmount();
    }
}

fn check(block: &Loop) {
    run("fsck.ext4", &["-f", "-n", &block.device]).done();
}
