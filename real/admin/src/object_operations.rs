//! Operations on objects that take more than one request, or whose errors have codes: reading and writing of any length, lists, waiting for
//! changes, and requests that are guarded by a token. Single requests are methods of [`Object`] and [`Space`].

use crate::device_lifecycle;
use crate::failure::{Exit, Failure};
use braid_base::limits;
use braid_client::{Answers, AttributeName, Bytes, Error as ClientError, Object, Request, RequestError, Space, Value};
use braid_control::{ControlPlane, ReportedState};
use std::time::{Duration, Instant};

/// Bytes of one read, and of one atomic write.
pub const PART: usize = limits::OBJECT_IO_BYTES_MAX;
/// Bytes of one atomic append without a guard, which takes some of the space.
const APPEND: usize = limits::OBJECT_REQUEST_BYTES_MAX;

/// Requests are executed only while an attribute of their object holds this fencing token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenGuard {
    pub name: AttributeName,
    pub token: u64,
}

/// The result of a request with one command.
struct Done {
    answers: Answers,
    /// The index of the command's answer.
    command: usize,
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed<T> {
    pub found: Vec<T>,
    pub more: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The offset of the first.
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
}

/// A failure after some bytes were written.
#[derive(Clone, Debug)]
pub struct WriteFailure {
    /// How many bytes were written before.
    pub written: u64,
    pub failure: Failure,
}

impl TokenGuard {
    /// The failure if the attribute holds another value.
    fn too_late(self, found: &Value) -> Failure {
        let TokenGuard { name, token } = self;
        let holds = match found.as_i64() {
            Some(other) => format!("{}", other as u64),
            None if found.is_undefined() => "no token: it is not held".to_string(),
            None => "a value that is not a token".to_string(),
        };
        let message = format!("too late, nothing was done: attribute {} holds {holds}, not {token}", attribute(name));
        Failure { exit: Exit::TooLate, ..Failure::failed("too-late", message) }
    }
}

/// Fails if a device is out and can't return by itself: requests for its objects would only time out.
pub async fn require_device(control: &ControlPlane, id: u16) -> Result<(), Failure> {
    let Some(device) = device_lifecycle::report_of(control, id).await? else { return Ok(()) };
    let (why, hint) = match device.member_state {
        ReportedState::Out if device.kept_out => (
            "it was taken out by an operator".to_string(),
            format!("allow it to return with `braid device readmit {id}`"),
        ),
        ReportedState::Out => match device.refusal() {
            Some(why) => {
                (why, "`braid status` shows what it waits for; objects of a disk that is lost are lost".to_string())
            }
            None => return Ok(()),
        },
        _ => return Ok(()),
    };
    let message = format!("device {id} is out, and with it its objects: {why}");
    Err(Failure::unreachable("device-out", message).hint(hint))
}

/// Formats an attribute's name; pages of devices are in hexadecimal.
pub fn attribute(name: AttributeName) -> String {
    if name.is_reserved() {
        format!("{:#x}.{}", name.page, name.number)
    } else {
        format!("{}.{}", name.page, name.number)
    }
}

/// Sends a request with one command, and the guard if there is one.
async fn send(
    object: &Object,
    guard: Option<TokenGuard>,
    command: impl FnOnce(Request) -> Request,
) -> Result<Done, Failure> {
    // The error without the number of the command, because there is only one.
    let of = |RequestError { error, .. }: RequestError| Failure::from(error);
    let Some(guard) = guard else {
        return Ok(Done { answers: command(object.request()).send().await.map_err(of)?, command: 0 });
    };
    let value = Value::from(guard.token as i64);
    let request = object.request().compare_and_swap_exact(guard.name, value.clone(), value);
    let answers = command(request).if_swapped().send().await.map_err(of)?;
    match answers.swapped(0) {
        Some(found) if !found.swapped => Err(guard.too_late(&found.original)),
        _ => Ok(Done { answers, command: 1 }),
    }
}

/// Sets an attribute. If the guard's attribute holds another token, the error is `too-late`, and nothing is done.
pub async fn set(
    object: &Object,
    guard: Option<TokenGuard>,
    name: AttributeName,
    value: &Value,
) -> Result<(), Failure> {
    send(object, guard, |request| request.set(name, value)).await.map(|_| ())
}

/// Writes bytes from `offset` on, in atomic and guarded parts of [`PART`] bytes. `next` returns up to so many bytes, and fewer only at the
/// end.
pub async fn write(
    object: &Object,
    guard: Option<TokenGuard>,
    offset: u64,
    mut next: impl FnMut(usize) -> Result<Bytes, Failure>,
) -> Result<Written, WriteFailure> {
    let mut written = 0;
    loop {
        let outcome = async {
            let part = next(PART)?;
            let length = part.len();
            send(object, guard, |request| request.write(offset + written, part)).await?;
            Ok::<_, Failure>(length)
        };
        let length = outcome.await.map_err(|failure| WriteFailure { written, failure })?;
        written += length as u64;
        if length < PART {
            return Ok(Written { offset, bytes: written });
        }
    }
}

/// Writes bytes at the object's end, in atomic parts: of 512 KiB, or guarded ones of 256 KiB. Between them, other programs may append, too.
pub async fn append(
    object: &Object,
    guard: Option<TokenGuard>,
    mut next: impl FnMut(usize) -> Result<Bytes, Failure>,
) -> Result<Written, WriteFailure> {
    let most = if guard.is_some() { PART } else { APPEND };
    let (mut begun, mut written) = (None, 0);
    loop {
        let outcome = async {
            let part = next(most)?;
            let length = part.len();
            if guard.is_none() {
                return Ok((object.append(part).await?, length));
            }
            let done = send(object, guard, |request| request.append(part)).await?;
            let offset = done.answers.appended(done.command).ok_or(ClientError::ProtocolError)?;
            Ok::<_, Failure>((offset, length))
        };
        let (offset, length) = outcome.await.map_err(|failure| WriteFailure { written, failure })?;
        let offset = *begun.get_or_insert(offset);
        written += length as u64;
        if length < most {
            return Ok(Written { offset, bytes: written });
        }
    }
}

/// Reads up to `length` bytes from `offset` on, part by part, up to the object's end. `take` receives each part, and returns false to stop.
pub async fn read(
    object: &Object,
    mut offset: u64,
    length: u64,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<(), Failure> {
    let mut left = length;
    loop {
        let part = left.min(PART as u64);
        let data = object.read(offset, part).await?;
        let goes_on = take(&data);
        (offset, left) = (offset.saturating_add(data.len() as u64), left - data.len() as u64);
        if !goes_on || (data.len() as u64) < part || left == 0 {
            return Ok(());
        }
    }
}

/// The objects of a space after the number `after`, at most `limit`.
pub async fn objects(space: &Space, after: u64, limit: Option<u32>) -> Result<Listed<u64>, Failure> {
    list(limit, after, async |after, most| Ok(space.list_after(after, most).await?), |number| *number).await
}

/// The attributes of an object with their lengths, at most `limit`: those of one page, or of all, after the attribute `after`.
pub async fn attributes(
    object: &Object,
    page: Option<u32>,
    after: Option<AttributeName>,
    limit: Option<u32>,
) -> Result<Listed<(AttributeName, u32)>, Failure> {
    let ask = async |after, most| Ok(object.attributes_after(page, after, most).await?);
    list(limit, after, ask, |(name, _)| Some(*name)).await
}

/// Lists part by part. `ask` returns the elements after a position, and whether there are more; `position` returns that of an element.
async fn list<T, P: Copy>(
    limit: Option<u32>,
    mut after: P,
    ask: impl AsyncFn(P, u32) -> Result<(Vec<T>, bool), Failure>,
    position: impl Fn(&T) -> P,
) -> Result<Listed<T>, Failure> {
    let (mut all, mut left) = (Vec::new(), limit.unwrap_or(u32::MAX));
    loop {
        let (found, more) = ask(after, left.min(limits::OBJECT_LIST_MAX as u32)).await?;
        left -= (found.len() as u32).min(left);
        after = found.last().map_or(after, &position);
        let ends = !more || left == 0 || found.is_empty();
        all.extend(found);
        if ends {
            return Ok(Listed { found: all, more });
        }
    }
}

/// Waits until an attribute differs from `seen` (none for its present value), and returns it; none if it does not change within `timeout`.
/// Each request has the deadline of the object, or `timeout` if that is shorter; a single look, without a timeout, has the former.
pub async fn wait_for_change(
    object: &Object,
    name: AttributeName,
    seen: Option<Value>,
    timeout: Duration,
) -> Result<Option<Value>, Failure> {
    let begun = Instant::now();
    let most = object.space().array().deadline();
    let object = object.within(if timeout.is_zero() { most } else { most.min(timeout) });
    let seen = match seen {
        Some(seen) => seen,
        None => object.get(name).await?,
    };
    Ok(object.wait_for_change(name, seen, timeout.saturating_sub(begun.elapsed())).await?)
}
