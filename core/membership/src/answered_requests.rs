//! The last requests of operators that were answered: a table in the monitor's record.
//!
//! A late copy of such a request must not take effect: its sender knows the answer, and may have decided otherwise since; or the request was
//! granted, and another host has undone it since. Only what is durable holds for copies that arrive after a restart of the monitor. So a
//! request is noted in the record that grants it, and a refusal is in the record before it is answered.

use braid_base::Generation;
use bytes::{Buf, BufMut};

/// The most hosts whose last answer is remembered: those that were answered last.
pub(crate) const ANSWERED_MAX: usize = 32;
/// A host, whether it was refused, and a ticket.
const ANSWER_BYTES: usize = 4 + 4 + 8;

/// The last answer to each of some hosts, in the order of the answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AnsweredRequests(Vec<AnsweredRequest>);

/// The last request of a host that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AnsweredRequest {
    pub host: Generation,
    pub ticket: u64,
    pub is_refused: bool,
}

impl AnsweredRequests {
    /// The most bytes of a table in the record: a count, and the answers.
    pub const BYTES_MAX: usize = 4 + ANSWERED_MAX * ANSWER_BYTES;

    pub fn of(&self, host: Generation) -> Option<AnsweredRequest> {
        self.0.iter().find(|answered| answered.host == host).copied()
    }

    /// Notes an answer. Hosts that are `fenced` need no entry any more: the monitor ignores them.
    pub fn note(&mut self, answered: AnsweredRequest, fenced: impl Fn(Generation) -> bool) {
        let last = self.of(answered.host).filter(|last| last.ticket > answered.ticket).unwrap_or(answered);
        self.0.retain(|other| other.host != answered.host && !fenced(other.host));
        if self.0.len() == ANSWERED_MAX {
            self.0.remove(0);
        }
        self.0.push(last);
    }

    pub fn put(&self, to: &mut Vec<u8>) {
        to.put_u32_le(self.0.len() as u32);
        for AnsweredRequest { host, ticket, is_refused } in &self.0 {
            to.put_u32_le(host.0);
            to.put_u32_le((*is_refused).into());
            to.put_u64_le(*ticket);
        }
    }

    pub fn take(from: &mut &[u8]) -> Option<AnsweredRequests> {
        let count = from.try_get_u32_le().ok()? as usize;
        if count > ANSWERED_MAX {
            return None;
        }
        let mut table = AnsweredRequests::default();
        for _ in 0..count {
            let (host, is_refused) = (Generation(from.try_get_u32_le().ok()?), from.try_get_u32_le().ok()?);
            let ticket = from.try_get_u64_le().ok()?;
            if is_refused > 1 || table.of(host).is_some() {
                return None;
            }
            table.0.push(AnsweredRequest { host, ticket, is_refused: is_refused == 1 });
        }
        Some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(host: u32, ticket: u64) -> AnsweredRequest {
        AnsweredRequest { host: Generation(host), ticket, is_refused: ticket.is_multiple_of(2) }
    }

    #[test]
    fn the_latest_request_of_the_hosts_that_asked_last_is_kept_and_comes_back() {
        let mut table = AnsweredRequests::default();
        let nobody = |_| false;
        for host in 0..ANSWERED_MAX as u32 {
            table.note(answered(host, 8), nobody);
        }
        table.note(answered(0, 9), nobody);
        table.note(answered(0, 7), nobody);
        table.note(answered(100, 1), nobody);
        assert_eq!((table.of(Generation(0)), table.of(Generation(1))), (Some(answered(0, 9)), None));
        let mut bytes = Vec::new();
        table.put(&mut bytes);
        assert_eq!(bytes.len(), AnsweredRequests::BYTES_MAX);
        let mut from = &bytes[..];
        assert_eq!((AnsweredRequests::take(&mut from), from.len()), (Some(table.clone()), 0));
        // Too many; neither granted nor refused; a host twice.
        for (at, value) in [(0, ANSWERED_MAX as u32 + 1), (8, 2), (4, 3)] {
            let mut other = bytes.clone();
            other[at..at + 4].copy_from_slice(&value.to_le_bytes());
            assert_eq!(AnsweredRequests::take(&mut &other[..]), None, "{value} at {at}");
        }
        table.note(answered(101, 1), |host| host < Generation(100));
        let all = [0, 3, 100, 101].map(|host| table.of(Generation(host)));
        assert_eq!(all, [None, None, Some(answered(100, 1)), Some(answered(101, 1))]);
    }
}
