//! Counters of the shell, which show the cost of operations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

braid_base::counters! {
    /// Counters since the start. The shell increments them; any thread may read them at any time.
    pub struct Counters: AtomicU64, read by load;
    /// Rounds of the driver: each takes all input that is ready, then flushes.
    rounds,
    /// Inputs passed to the machine.
    inputs,
    /// Valid frames received.
    frames_received,
    /// Bytes read from sockets.
    bytes_received,
    /// Frames passed to a connection.
    frames_sent,
    /// Bytes written to sockets.
    bytes_sent,
    /// Messages dropped because there was no connection.
    dropped_unconnected,
    /// Messages dropped because a connection's queue was full.
    dropped_full,
    /// Messages dropped because their sender held too much of the memory budget.
    dropped_memory,
    /// Connections closed because of invalid input.
    connections_refused,
    /// System calls that read from sockets.
    socket_reads,
    /// System calls that write to sockets.
    socket_writes,
    /// Disk commands accepted.
    disk_commands,
    /// How long disk commands wait for the next one to complete, as a mean over the last seconds, in microseconds.
    disk_response_micros,
    /// System calls that pass disk commands to io_uring.
    ring_enters,
    /// Bytes written to the recording.
    recorded_bytes,
    /// Not zero if the recording has stopped before the process: the number of a [`StoppedRecording`].
    recording_stopped,
}

/// Why a recording has stopped before its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoppedRecording {
    AtLimit = 1,
    Unwritable = 2,
}

impl StoppedRecording {
    /// The reason that a counter tells; none if the recording has not stopped, or there is none.
    pub fn of(counter: u64) -> Option<StoppedRecording> {
        [StoppedRecording::AtLimit, StoppedRecording::Unwritable].into_iter().find(|why| *why as u64 == counter)
    }

    pub fn words(self) -> &'static str {
        match self {
            StoppedRecording::AtLimit => "it has reached its limit (`--record-limit`)",
            StoppedRecording::Unwritable => "its file can't be written",
        }
    }
}

impl Counters {
    /// Notes bytes of a recording.
    pub fn add_recorded(&self, bytes: usize) {
        add(&self.recorded_bytes, bytes);
    }

    /// Notes that a recording has stopped.
    pub fn note_recording_stopped(&self, why: StoppedRecording) {
        self.recording_stopped.store(why as u64, Relaxed);
    }

    /// The value of one counter; zero if there is no counter of this name.
    pub fn value(&self, name: &str) -> u64 {
        self.list().into_iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| value)
    }
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Increments a counter.
pub(crate) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}
