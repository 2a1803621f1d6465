//! The NBD server to compare with: `qemu-nbd` on the raw file, over loopback TCP like Braid.

use super::interrupt::Interrupt;
use super::process::Process;
use anyhow::{Result, bail};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long it may take to listen.
const START_WAIT: Duration = Duration::from_secs(20);

/// The server. It is stopped when dropped.
pub struct Qemu {
    _process: Process,
    /// Its address.
    pub uri: String,
}

impl Qemu {
    /// Starts a server for `file`.
    pub fn start(file: &Path, folder: &Path, interrupt: &Interrupt) -> Result<Qemu> {
        // The port was free a moment ago; no other process is expected to take it.
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut command = Command::new("qemu-nbd");
        command.args(["--cache=none", "--aio=io_uring", "--format=raw", "--persistent", "--shared=4"]);
        command.args(["--bind=127.0.0.1", &format!("--port={port}")]).arg(file);
        let mut process = Process::start(&mut command, &folder.join("qemu-nbd.log"))?;
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            process.check()?;
            if begun.elapsed() > START_WAIT {
                bail!("qemu-nbd did not listen within {START_WAIT:?}:\n{}", process.said());
            }
            interrupt.pause(Duration::from_millis(50))?;
        }
        Ok(Qemu { _process: process, uri: format!("nbd://127.0.0.1:{port}") })
    }
}
