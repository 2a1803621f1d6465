//! A minimal client: blocking, and able to misbehave.

use braid_shell::Address;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;

pub struct Client {
    stream: TcpStream,
}

impl Client {
    pub fn connect(address: &Address) -> Client {
        let Address::Tcp { host, port } = address else { panic!("only TCP is spoken here") };
        let stream = TcpStream::connect((host.as_str(), *port)).unwrap();
        // Long enough for the slowest machine; a test that reaches it has failed.
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Client { stream }
    }

    /// Connects and chooses an export; replies are simple.
    pub fn open(address: &Address, export: &str) -> Client {
        let mut client = Client::connect(address);
        assert_eq!(client.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        let name = export.as_bytes();
        let option = [b"\0\0\0\x03IHAVEOPT\0\0\0\x01", &(name.len() as u32).to_be_bytes()[..], name].concat();
        client.send(&option);
        client.take(10);
        client
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn request(&mut self, command: u16, cookie: u64, offset: u64, length: u32) {
        self.send(&header(command, cookie, offset, length));
    }

    /// The cookie and error of the next reply. The data of a read is still to be read.
    pub fn reply(&mut self) -> (u64, u32) {
        let reply = self.take(16);
        assert_eq!(reply[..4], [0x67, 0x44, 0x66, 0x98]);
        (u64::from_be_bytes(reply[8..].try_into().unwrap()), u32::from_be_bytes(reply[4..8].try_into().unwrap()))
    }

    pub fn take(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Closes the sending direction.
    pub fn finish(&mut self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// What the server sends until it disconnects.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => assert!(other.is_ok(), "the server did not hang up: {other:?}"),
        }
        bytes
    }
}

pub fn header(command: u16, cookie: u64, offset: u64, length: u32) -> Vec<u8> {
    let fixed = [&0x2560_9513u32.to_be_bytes()[..], &[0, 0], &command.to_be_bytes()].concat();
    [&fixed[..], &cookie.to_be_bytes(), &offset.to_be_bytes(), &length.to_be_bytes()].concat()
}
