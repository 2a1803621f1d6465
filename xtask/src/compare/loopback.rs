//! The throughput of loopback TCP: one thread writes, another reads.

use crate::prelude::*;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Bytes of each write, the same as in the requests that it is compared with.
const PIECE: usize = 1 << 20;
/// How long the other side may be silent.
const SILENCE: Duration = Duration::from_secs(10);

/// Bytes a second over one connection, measured for `duration` at the receiver.
pub fn bytes_per_second(duration: Duration, interrupt: &Interrupt) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    sender.set_write_timeout(Some(SILENCE))?;
    receiver.set_read_timeout(Some(SILENCE))?;

    std::thread::scope(|scope| {
        let counting = scope.spawn(move || -> Result<f64> {
            let (mut buffer, mut received, begun) = (vec![0; PIECE], 0, Instant::now());
            loop {
                match receiver.read(&mut buffer).context("loopback TCP can't be read")? {
                    0 => return Ok(received as f64 / begun.elapsed().as_secs_f64()),
                    count => received += count,
                }
            }
        });
        let (piece, begun) = (vec![0x5a; PIECE], Instant::now());
        while begun.elapsed() < duration && interrupt.check().is_ok() {
            sender.write_all(&piece).context("loopback TCP can't be written")?;
        }
        drop(sender);
        let found = counting.join().ok().context("the reader of loopback TCP has failed")?;
        interrupt.check()?;
        found
    })
}
