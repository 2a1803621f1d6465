//! An NBD client with many requests in flight on one connection, with which benchmarks drive a server.
//!
//! It works with any server that speaks fixed newstyle and simple replies. All requests that are made before the connection's writer runs
//! are sent in one write. Replies are accepted in any order.

use crate::protocol::*;
use braid_shell::Address;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long a server may take for the handshake.
const OPEN_WAIT: Duration = Duration::from_secs(10);
/// How long a request may take: longer than a host of the array tries.
const ANSWER_WAIT: Duration = Duration::from_secs(45);
/// How much is read at once, in bytes.
const READ_BYTES: usize = 256 << 10;
/// If a buffer has less room than this, in bytes, it is replaced by a new one.
const ROOM_MIN: usize = 16 << 10;
/// The longest answer to an option that is accepted, in bytes.
const OPTION_REPLY_BYTES_MAX: usize = 64 << 10;
const SIMPLE_REPLY_BYTES: usize = 16;

/// An open export. The connection ends when it is dropped.
#[derive(Debug)]
pub struct Client {
    shared: Arc<Shared>,
    bytes: u64,
    _tasks: JoinSet<()>,
}

/// Why a request or the handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The connection was closed by the system or the server.
    #[error("the connection to the NBD server broke: {0}")]
    Broken(String),
    /// The server sent something that is not the protocol.
    #[error("the server does not speak NBD in a way that this client understands")]
    NotUnderstood,
    /// The server does not serve the export, and explains why.
    #[error("the NBD server refuses the export '{export}': {reason}")]
    NoExport { export: String, reason: String },
    /// The server answered a request with an error, which has this number in errno.h.
    #[error("the NBD server answers with error {number}")]
    Refused { number: u32 },
    /// The server did not answer within this time.
    #[error("the NBD server did not answer within {0:?}")]
    Silent(Duration),
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> ClientError {
        ClientError::Broken(error.to_string())
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when there is something to send.
    filled: Notify,
}

#[derive(Debug, Default)]
struct State {
    out: BytesMut,
    last_cookie: u64,
    pending: HashMap<u64, Pending>,
    broken: Option<ClientError>,
}

#[derive(Debug)]
struct Pending {
    /// The number of data bytes that a successful reply carries.
    length: usize,
    answer: oneshot::Sender<Result<Bytes, ClientError>>,
}

impl Client {
    /// Connects and chooses an export. Must be called within a tokio runtime.
    pub async fn open(address: &Address, export: &str) -> Result<Client, ClientError> {
        let opening = async {
            match address {
                Address::Tcp { host, port } => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    let (read, write) = stream.into_split();
                    Client::start(read, write, export).await
                }
                Address::Unix(path) => {
                    let (read, write) = braid_shell::unix::connect(path).await?.into_split();
                    Client::start(read, write, export).await
                }
            }
        };
        timeout(OPEN_WAIT, opening).await.unwrap_or(Err(ClientError::Silent(OPEN_WAIT)))
    }

    async fn start(
        mut read: impl AsyncRead + Unpin + Send + 'static,
        mut write: impl AsyncWrite + Unpin + Send + 'static,
        export: &str,
    ) -> Result<Client, ClientError> {
        let bytes = choose(&mut read, &mut write, export).await?;
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        let sending = shared.clone();
        tasks.spawn(async move {
            let Err(error) = send(&sending, write).await;
            sending.fail(error.into());
        });
        let receiving = shared.clone();
        tasks.spawn(async move {
            let Err(error) = receive(&receiving, read).await;
            receiving.fail(error);
        });
        Ok(Client { shared, bytes, _tasks: tasks })
    }

    /// The export's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub async fn read(&self, offset: u64, length: usize) -> Result<Bytes, ClientError> {
        self.call(command::READ, offset, length, &[], length).await
    }

    pub async fn write(&self, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.call(command::WRITE, offset, data.len(), data, 0).await.map(|_| ())
    }

    async fn call(
        &self,
        command: u16,
        offset: u64,
        length: usize,
        data: &[u8],
        brings: usize,
    ) -> Result<Bytes, ClientError> {
        let (answer, answered) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if let Some(error) = &state.broken {
                return Err(error.clone());
            }
            state.last_cookie += 1;
            let cookie = state.last_cookie;
            state.pending.insert(cookie, Pending { length: brings, answer });
            let out = &mut state.out;
            out.put_u32(REQUEST_MAGIC);
            out.put_u16(0);
            out.put_u16(command);
            out.put_u64(cookie);
            out.put_u64(offset);
            out.put_u32(length as u32);
            out.put_slice(data);
        }
        self.shared.filled.notify_one();
        let answered = timeout(ANSWER_WAIT, answered).await.map_err(|_| ClientError::Silent(ANSWER_WAIT))?;
        answered.unwrap_or_else(|_| Err(ClientError::Broken("it was closed".into())))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while holding it")
    }

    /// Fails all present and future requests.
    fn fail(&self, error: ClientError) {
        let mut state = self.lock();
        let error = state.broken.get_or_insert(error).clone();
        for (_, pending) in state.pending.drain() {
            let _ = pending.answer.send(Err(error.clone()));
        }
    }
}

async fn send(shared: &Shared, mut write: impl AsyncWrite + Unpin) -> Result<std::convert::Infallible, io::Error> {
    loop {
        shared.filled.notified().await;
        let mut out = std::mem::take(&mut shared.lock().out);
        write.write_all_buf(&mut out).await?;
    }
}

async fn receive(shared: &Shared, mut read: impl AsyncRead + Unpin) -> Result<std::convert::Infallible, ClientError> {
    let mut input = BytesMut::with_capacity(READ_BYTES);
    loop {
        let missing = take_replies(&mut shared.lock(), &mut input)?;
        // The end of long data needs no room for what follows: to grow a long buffer once more doubles it.
        let room_min = if input.len() < READ_BYTES { ROOM_MIN } else { 1 };
        if input.capacity() - input.len() < missing.max(room_min) {
            input.reserve(missing.max(READ_BYTES));
        }
        if read.read_buf(&mut input).await? == 0 {
            return Err(ClientError::Broken("the server closed it".into()));
        }
    }
}

/// Takes all complete replies from `input`. Returns the least number of bytes that the next reply still lacks.
fn take_replies(state: &mut State, input: &mut BytesMut) -> Result<usize, ClientError> {
    loop {
        let Some(mut head) = input.get(..SIMPLE_REPLY_BYTES) else { return Ok(SIMPLE_REPLY_BYTES - input.len()) };
        let (magic, number, cookie) = (head.get_u32(), head.get_u32(), head.get_u64());
        let pending = state.pending.get(&cookie).filter(|_| magic == SIMPLE_REPLY_MAGIC);
        let length = pending.map(|pending| if number == 0 { pending.length } else { 0 });
        let length = length.ok_or(ClientError::NotUnderstood)?;
        let whole = SIMPLE_REPLY_BYTES + length;
        if input.len() < whole {
            return Ok(whole - input.len());
        }
        input.advance(SIMPLE_REPLY_BYTES);
        let data = input.split_to(length).freeze();
        let pending = state.pending.remove(&cookie).expect("just looked up");
        // The caller may have stopped waiting.
        let _ = pending.answer.send(if number == 0 { Ok(data) } else { Err(ClientError::Refused { number }) });
    }
}

/// Performs the handshake. Returns the export's size in bytes.
async fn choose(
    read: &mut (impl AsyncRead + Unpin),
    write: &mut (impl AsyncWrite + Unpin),
    export: &str,
) -> Result<u64, ClientError> {
    let newstyle = read.read_u64().await? == GREETING_MAGIC && read.read_u64().await? == OPTION_MAGIC;
    if !newstyle || read.read_u16().await? & greeting::FIXED_NEWSTYLE == 0 {
        return Err(ClientError::NotUnderstood);
    }
    let mut ask = BytesMut::new();
    ask.put_u32(u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES));
    ask.put_u64(OPTION_MAGIC);
    ask.put_u32(option::GO);
    ask.put_u32(export.len() as u32 + 6);
    ask.put_u32(export.len() as u32);
    ask.put_slice(export.as_bytes());
    ask.put_u16(0);
    write.write_all(&ask).await?;
    let mut bytes = None;
    loop {
        let ours = read.read_u64().await? == OPTION_REPLY_MAGIC && read.read_u32().await? == option::GO;
        let (reply, length) = (read.read_u32().await?, read.read_u32().await? as usize);
        if !ours || length > OPTION_REPLY_BYTES_MAX {
            return Err(ClientError::NotUnderstood);
        }
        let mut body = vec![0; length];
        read.read_exact(&mut body).await?;
        match reply {
            option_reply::ACK => return bytes.ok_or(ClientError::NotUnderstood),
            option_reply::INFO if length >= 10 && body[..2] == info::EXPORT.to_be_bytes() => {
                bytes = Some((&body[2..]).get_u64());
            }
            option_reply::INFO => {}
            _ => {
                let reason = String::from_utf8_lossy(&body).into_owned();
                return Err(ClientError::NoExport { export: export.to_string(), reason });
            }
        }
    }
}
