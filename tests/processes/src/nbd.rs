//! A minimal NBD client: blocking, with simple replies, and able to violate the protocol.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Why a request failed.
#[derive(Debug)]
pub enum Refusal {
    /// The server reported this error number.
    Said(u32),
    /// The connection was closed. The last requests may have been executed or not.
    Gone(io::Error),
}

/// An error number that tests check.
pub const EIO: u32 = 5;

const READ: u16 = 0;
const WRITE: u16 = 1;
const TRIM: u16 = 4;

/// The time limit of a request; a test that reaches it has failed.
const ANSWER_LIMIT: Duration = Duration::from_secs(90);

/// A connection to one export.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    next_cookie: u64,
}

impl Client {
    /// Connects to an address such as `nbd://127.0.0.1:10809/vol0`.
    pub fn open(uri: &str) -> Client {
        Client::try_open(uri).unwrap_or_else(|error| panic!("{uri}: {error}"))
    }

    /// Like [`Client::open`], but may fail.
    pub fn try_open(uri: &str) -> io::Result<Client> {
        let (address, export) = parts(uri);
        let mut client = Client { stream: connect(address)?, next_cookie: 1 };
        let greeting = client.take(18)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT", "this is not an NBD server");
        // The option that chooses an export by its name alone, which the server answers with the size and flags, or by closing.
        let length = (export.len() as u32).to_be_bytes();
        client.stream.write_all(&[b"\0\0\0\x03IHAVEOPT\0\0\0\x01", &length[..], export.as_bytes()].concat())?;
        client.take(10)?;
        Ok(client)
    }

    /// Reads, and waits for the reply.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let cookie = self.send_read(offset, length).map_err(Refusal::Gone)?;
        self.finish(cookie, length)
    }

    /// Writes, and waits for the reply.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Refusal> {
        let cookie = self.send_write(offset, data).map_err(Refusal::Gone)?;
        self.finish(cookie, 0).map(|_| ())
    }

    /// Discards a range, and waits for the reply.
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), Refusal> {
        let cookie = self.send(TRIM, offset, length, &[]).map_err(Refusal::Gone)?;
        self.finish(cookie, 0).map(|_| ())
    }

    /// Sends a read. Returns its cookie.
    pub fn send_read(&mut self, offset: u64, length: usize) -> io::Result<u64> {
        self.send(READ, offset, length as u32, &[])
    }

    /// Sends a write. Returns its cookie.
    pub fn send_write(&mut self, offset: u64, data: &[u8]) -> io::Result<u64> {
        self.send(WRITE, offset, data.len() as u32, data)
    }

    /// The cookie and error number of the next reply. The data of a successful read follow: get them with `take`.
    pub fn reply(&mut self) -> io::Result<(u64, u32)> {
        let head = self.take(16)?;
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98], "only simple replies were agreed on");
        let error = u32::from_be_bytes(head[4..8].try_into().expect("four bytes"));
        Ok((u64::from_be_bytes(head[8..].try_into().expect("eight bytes")), error))
    }

    pub fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn send(&mut self, command: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let fixed =
            [&0x2560_9513u32.to_be_bytes()[..], &[0, 0], &command.to_be_bytes(), &cookie.to_be_bytes()].concat();
        let request = [&fixed[..], &offset.to_be_bytes(), &length.to_be_bytes(), data].concat();
        self.stream.write_all(&request)?;
        Ok(cookie)
    }

    /// Waits for the reply to the only request in flight.
    fn finish(&mut self, cookie: u64, length: usize) -> Result<Vec<u8>, Refusal> {
        let (answered, error) = self.reply().map_err(Refusal::Gone)?;
        assert_eq!(answered, cookie, "the only request in flight is answered");
        match error {
            0 => self.take(length).map_err(Refusal::Gone),
            error => Err(Refusal::Said(error)),
        }
    }
}

/// Splits `nbd://HOST:PORT/EXPORT` into address and export.
fn parts(uri: &str) -> (&str, &str) {
    let rest = uri.strip_prefix("nbd://").expect("TCP is what the tests use");
    rest.split_once('/').expect("an export is named")
}

fn connect(address: &str) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    Ok(stream)
}
