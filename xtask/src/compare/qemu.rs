//! The NBD server to compare with: `qemu-nbd` on the raw file, over loopback TCP like Braid.

use super::process::{await_listener, free_port};
use crate::prelude::*;

/// How long it may take to listen.
const START_WAIT: Duration = Duration::from_secs(20);

/// The server. It is stopped when dropped.
pub struct Qemu {
    _process: Process,
    pub uri: String,
}

impl Qemu {
    pub fn start(file: &Path, folder: &Path, interrupt: &Interrupt) -> Result<Qemu> {
        let port = free_port()?;
        let mut command = Command::new("qemu-nbd");
        command.args(["--cache=none", "--aio=io_uring", "--format=raw", "--persistent", "--shared=4"]);
        command.args(["--bind=127.0.0.1", &format!("--port={port}")]).arg(file);
        let mut process = Process::start(&mut command, &folder.join("qemu-nbd.log"))?;
        await_listener(&mut process, port, START_WAIT, interrupt)?;
        Ok(Qemu { _process: process, uri: format!("nbd://127.0.0.1:{port}") })
    }
}
