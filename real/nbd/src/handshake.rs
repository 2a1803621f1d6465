//! The handshake: a client negotiates options until it chooses an export. This module is pure: it takes bytes and returns bytes.
//!
//! ```text
//!     server  greeting ─►
//!     client           ◄─ flags
//!     client           ◄─ LIST, STRUCTURED_REPLY, SET_META_CONTEXT, INFO, …     server  answers each ─►
//!     client           ◄─ GO (or the old EXPORT_NAME)                           server  size, flags ─►   transmission begins
//! ```
//!
//! Each call handles one option, whose answer must be sent before the next call. So if a client sends options without reading the answers,
//! the answers do not accumulate.

use crate::Export;
use crate::protocol::*;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest option that is read, in bytes: many times that of GO with the longest name and all meta contexts.
const OPTION_BYTES_MAX: usize = 64 << 10;
/// The most options of a client before it must have chosen an export.
const OPTIONS_MAX: u32 = 4096;
const OPTION_HEADER_BYTES: usize = 16;

#[derive(Debug)]
pub(crate) struct Handshake {
    /// The longest request that the client should make.
    request_bytes: u32,
    heard_flags: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which `base:allocation` was chosen; it is not valid for others.
    allocation_for: Option<String>,
    options: u32,
}

/// The result of a call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The option is incomplete: more bytes are needed.
    Incomplete,
    /// An option was handled; there may be more in the input.
    Answered,
    /// The client has chosen an export; the rest of the input are requests.
    Chosen(Negotiated),
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Negotiated {
    pub export: Export,
    pub structured: bool,
    /// BLOCK_STATUS is allowed.
    pub allocation: bool,
}

/// Why the handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error("the client sent the unknown flags {flags:#x}: is it an NBD client?")]
    UnknownFlags { flags: u32 },
    #[error("the client sent {magic:#x} where an option begins: is it an NBD client?")]
    NotAnOption { magic: u64 },
    #[error("the client sent an option of {length} bytes; at most {OPTION_BYTES_MAX} are read")]
    OptionTooLong { length: usize },
    #[error("the client sent {OPTIONS_MAX} options without choosing an export")]
    TooManyOptions,
    // EXPORT_NAME has no error reply: the protocol requires a disconnect.
    #[error("the client asked for the export {name:?}, which does not exist")]
    NoSuchExport { name: String },
}

/// The error reply to an option.
struct Refusal {
    reply: u32,
    text: String,
}

impl Default for Handshake {
    fn default() -> Handshake {
        Handshake::new(REQUEST_BYTES_MAX)
    }
}

impl Handshake {
    pub fn new(request_bytes: u32) -> Handshake {
        let (heard_flags, no_zeroes, structured, allocation_for) = (false, false, false, None);
        Handshake { request_bytes, heard_flags, no_zeroes, structured, allocation_for, options: 0 }
    }

    /// The server's greeting, with which the handshake begins.
    pub fn greeting() -> [u8; 18] {
        let mut greeting = [0; 18];
        let mut to = &mut greeting[..];
        to.put_u64(GREETING_MAGIC);
        to.put_u64(OPTION_MAGIC);
        to.put_u16(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        greeting
    }

    /// Takes one option from `input` and appends the answer to `out`.
    pub fn take(
        &mut self,
        input: &mut BytesMut,
        exports: &[Export],
        out: &mut BytesMut,
    ) -> Result<Progress, HandshakeError> {
        if !self.heard_flags {
            return self.take_flags(input);
        }
        let Some(mut header) = input.get(..OPTION_HEADER_BYTES) else { return Ok(Progress::Incomplete) };
        let (magic, option, length) = (header.get_u64(), header.get_u32(), header.get_u32() as usize);
        if magic != OPTION_MAGIC {
            return Err(HandshakeError::NotAnOption { magic });
        }
        if length > OPTION_BYTES_MAX {
            return Err(HandshakeError::OptionTooLong { length });
        }
        if input.len() < OPTION_HEADER_BYTES + length {
            return Ok(Progress::Incomplete);
        }
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Err(HandshakeError::TooManyOptions);
        }
        input.advance(OPTION_HEADER_BYTES);
        let body = input.split_to(length).freeze();
        self.on_option(option, body, exports, out)
    }

    fn take_flags(&mut self, input: &mut BytesMut) -> Result<Progress, HandshakeError> {
        if input.len() < 4 {
            return Ok(Progress::Incomplete);
        }
        let flags = input.get_u32();
        let known = u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        if flags & !known != 0 {
            return Err(HandshakeError::UnknownFlags { flags });
        }
        self.heard_flags = true;
        self.no_zeroes = flags & u32::from(greeting::NO_ZEROES) != 0;
        Ok(Progress::Answered)
    }

    fn on_option(
        &mut self,
        option: u32,
        body: Bytes,
        exports: &[Export],
        out: &mut BytesMut,
    ) -> Result<Progress, HandshakeError> {
        let answered = match option {
            option::EXPORT_NAME => return self.on_export_name(&body, exports, out),
            option::ABORT => {
                put_reply(out, option, option_reply::ACK, &[]);
                return Ok(Progress::Aborted);
            }
            option::LIST => on_list(&body, exports, out),
            option::STRUCTURED_REPLY => self.on_structured_reply(&body),
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.on_meta_context(option, body, exports, out),
            option::INFO | option::GO => match self.on_info(option, body, exports, out) {
                Ok(export) if option == option::GO => {
                    put_reply(out, option, option_reply::ACK, &[]);
                    return Ok(Progress::Chosen(self.negotiated(export)));
                }
                other => other.map(|_| ()),
            },
            _ => Err(Refusal::new(option_reply::ERR_UNSUP, format!("option {option} is not supported"))),
        };
        match answered {
            Ok(()) => put_reply(out, option, option_reply::ACK, &[]),
            Err(refusal) => put_reply(out, option, refusal.reply, refusal.text.as_bytes()),
        }
        Ok(Progress::Answered)
    }

    fn on_export_name(&self, body: &Bytes, exports: &[Export], out: &mut BytesMut) -> Result<Progress, HandshakeError> {
        let name = String::from_utf8_lossy(body);
        let Some(export) = find(&name, exports) else {
            return Err(HandshakeError::NoSuchExport { name: name.chars().take(64).collect() });
        };
        out.put_u64(export.bytes);
        out.put_u16(self.transmission_flags());
        if !self.no_zeroes {
            out.put_bytes(0, 124);
        }
        Ok(Progress::Chosen(self.negotiated(export)))
    }

    fn on_structured_reply(&mut self, body: &Bytes) -> Result<(), Refusal> {
        if !body.is_empty() {
            return Err(Refusal::malformed());
        }
        self.structured = true;
        Ok(())
    }

    fn on_meta_context(
        &mut self,
        option: u32,
        mut body: Bytes,
        exports: &[Export],
        out: &mut BytesMut,
    ) -> Result<(), Refusal> {
        let setting = option == option::SET_META_CONTEXT;
        if setting {
            // Each choice replaces the previous one, even if it fails.
            self.allocation_for = None;
            if !self.structured {
                return Err(Refusal::invalid("choose STRUCTURED_REPLY before a meta context"));
            }
        }
        let name = take_string(&mut body)?;
        let export = find(&name, exports).ok_or_else(|| Refusal::unknown(&name))?;
        let count = body.try_get_u32().map_err(|_| Refusal::malformed())?;
        let mut matched = count == 0 && !setting;
        for _ in 0..count {
            let query = take_string(&mut body)?;
            matched |= query == base_allocation::NAME || (!setting && query == "base:");
        }
        if body.has_remaining() {
            return Err(Refusal::malformed());
        }
        if matched {
            let mut reply = BytesMut::new();
            reply.put_u32(if setting { base_allocation::ID } else { 0 });
            reply.put_slice(base_allocation::NAME.as_bytes());
            put_reply(out, option, option_reply::META_CONTEXT, &reply);
        }
        if matched && setting {
            self.allocation_for = Some(export.name.clone());
        }
        Ok(())
    }

    fn on_info<'a>(
        &self,
        option: u32,
        mut body: Bytes,
        exports: &'a [Export],
        out: &mut BytesMut,
    ) -> Result<&'a Export, Refusal> {
        let name = take_string(&mut body)?;
        let count = body.try_get_u16().map_err(|_| Refusal::malformed())?;
        if body.len() != usize::from(count) * 2 {
            return Err(Refusal::malformed());
        }
        let export = find(&name, exports).ok_or_else(|| Refusal::unknown(&name))?;
        put_info(out, option, info::EXPORT, |to| {
            to.put_u64(export.bytes);
            to.put_u16(self.transmission_flags());
        });
        // Each information is sent once, however often it was requested.
        let asked: Vec<u16> = (0..count).map(|_| body.get_u16()).collect();
        if asked.contains(&info::NAME) {
            put_info(out, option, info::NAME, |to| to.put_slice(export.name.as_bytes()));
        }
        if asked.contains(&info::DESCRIPTION) && !export.description.is_empty() {
            put_info(out, option, info::DESCRIPTION, |to| to.put_slice(export.description.as_bytes()));
        }
        if asked.contains(&info::BLOCK_SIZE) {
            put_info(out, option, info::BLOCK_SIZE, |to| {
                to.put_u32(1);
                to.put_u32(PREFERRED_BLOCK_BYTES);
                to.put_u32(self.request_bytes);
            });
        }
        Ok(export)
    }

    fn negotiated(&self, export: &Export) -> Negotiated {
        Negotiated {
            export: export.clone(),
            structured: self.structured,
            allocation: self.allocation_for.as_ref() == Some(&export.name),
        }
    }

    fn transmission_flags(&self) -> u16 {
        use transmission::*;
        let always = HAS_FLAGS
            | SEND_FLUSH
            | SEND_FUA
            | SEND_TRIM
            | SEND_WRITE_ZEROES
            | CAN_MULTI_CONN
            | SEND_CACHE
            | SEND_FAST_ZERO;
        if self.structured { always | SEND_DF } else { always }
    }
}

impl Refusal {
    fn new(reply: u32, text: String) -> Refusal {
        Refusal { reply, text }
    }

    fn invalid(text: &str) -> Refusal {
        Refusal::new(option_reply::ERR_INVALID, text.to_string())
    }

    fn malformed() -> Refusal {
        Refusal::invalid("the option's data does not have the length or form that it must have")
    }

    fn unknown(name: &str) -> Refusal {
        let text = match name {
            "" => "there are several exports: name one (nbdinfo --list shows them)".to_string(),
            _ => format!("there is no export '{name}' (nbdinfo --list shows which there are)"),
        };
        Refusal::new(option_reply::ERR_UNKNOWN, text)
    }
}

fn on_list(body: &Bytes, exports: &[Export], out: &mut BytesMut) -> Result<(), Refusal> {
    if !body.is_empty() {
        return Err(Refusal::malformed());
    }
    for export in exports {
        let mut reply = BytesMut::new();
        reply.put_u32(export.name.len() as u32);
        reply.put_slice(export.name.as_bytes());
        reply.put_slice(export.description.as_bytes());
        put_reply(out, option::LIST, option_reply::SERVER, &reply);
    }
    Ok(())
}

/// The export of this name. The empty name denotes the only export, if there is just one.
fn find<'a>(name: &str, exports: &'a [Export]) -> Option<&'a Export> {
    match exports {
        [only] if name.is_empty() => Some(only),
        _ => exports.iter().find(|export| export.name == name),
    }
}

fn take_string(from: &mut Bytes) -> Result<String, Refusal> {
    let length = from.try_get_u32().map_err(|_| Refusal::malformed())? as usize;
    if length > from.len() {
        return Err(Refusal::malformed());
    }
    if length > STRING_BYTES_MAX {
        let text = format!("names have at most {STRING_BYTES_MAX} bytes");
        return Err(Refusal::new(option_reply::ERR_TOO_BIG, text));
    }
    String::from_utf8(from.split_to(length).into()).map_err(|_| Refusal::invalid("names are UTF-8"))
}

fn put_info(out: &mut BytesMut, option: u32, kind: u16, put: impl FnOnce(&mut BytesMut)) {
    let mut reply = BytesMut::new();
    reply.put_u16(kind);
    put(&mut reply);
    put_reply(out, option, option_reply::INFO, &reply);
}

fn put_reply(out: &mut BytesMut, option: u32, reply: u32, data: &[u8]) {
    out.put_u64(OPTION_REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(reply);
    out.put_u32(data.len() as u32);
    out.put_slice(data);
}
