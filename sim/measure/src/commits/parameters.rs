//! All numbers that determine a run of the experiments on commit protocols. The file with comments is
//! `sim/experiments/parameters/one-phase-commit.toml`.

use crate::named::{Named, ParameterError, parameters};
use braid_commit::Protocol;
use std::time::Duration;

parameters! {
    /// The parameters of a run. Together with the seed they determine it completely.
    parameters CommitParameters {
        system: CommitServers,
        workload: CommitWorkload,
        log: CommitLog,
        network: CommitNetwork,
        run: CommitRun,
    }

    /// The metadata servers.
    section CommitServers {
        servers: u64 => 1.0..=256.0,
        #[serde(with = "ProtocolName")]
        protocol: Protocol,
        /// Where the file of a directory's entry is.
        placement: Placement,
        /// What shares a write of the log, or a transaction.
        grouping: Grouping,
        /// The most operations in one transaction.
        group_max: u64 => 1.0..=64.0,
    }

    /// A protocol by name.
    #[serde(remote = "Protocol")]
    words ProtocolName {
        #[serde(rename = "prn")]
        PresumeNothing,
        #[serde(rename = "prc")]
        PresumeCommit,
        #[serde(rename = "ep")]
        EarlyPrepare,
        #[serde(rename = "1pc")]
        OnePhase,
    }

    words Placement {
        /// On the next server: each operation spans two servers, if there are two.
        Other,
        /// On any server, with the same chance.
        Anywhere,
    }

    words Grouping {
        /// Each record is a write of its own.
        None,
        /// Records that wait while a write is under way share the next one.
        Log,
        /// The same; and operations that wait for a directory, with their files on the same server, become one transaction.
        Operations,
    }

    /// The steps of clients.
    section CommitWorkload {
        /// Whether only the first server coordinates, or each.
        coordinators: Coordinators,
        /// Operations that each coordinator's clients have outstanding.
        outstanding: u64 => 1.0..=100_000.0,
        /// Directories of each coordinator. An operation changes one of them, under its lock.
        directories: u64 => 1.0..=1e6,
        /// The processor's time to compute an update of one object.
        object_us: f64 => 0.0..=1e6,
        /// The processor's time to send a message, and to receive one.
        message_us: f64 => 0.0..=1e6,
    }

    words Coordinators {
        First,
        Each,
    }

    /// The log of a server.
    section CommitLog {
        bandwidth_kb_s: f64 => 0.1..=1e12,
        /// The time of a write, besides that of its bytes.
        latency_us: f64 => 0.0..=1e6,
        /// Bytes of each record.
        record_bytes: u64 => 0.0..=1e6,
        /// Bytes of the updates of one operation at one server. They are added to the record that makes them durable.
        update_bytes: u64 => 0.0..=1e6,
        /// Whether writes of one server wait for each other.
        queue: LogQueue,
        /// What becomes of a record that nobody waits for.
        unforced: Unforced,
    }

    words LogQueue {
        /// One write at a time.
        One,
        /// Each write takes its time, however many are under way.
        None,
    }

    words Unforced {
        /// It is written at once, like others.
        Written,
        /// The next forced write carries it.
        Carried,
        /// It takes no time.
        Free,
    }

    section CommitNetwork {
        /// The time of a message from one server to another.
        latency_us: f64 => 0.0..=1e6,
    }

    /// The length of the measurement.
    section CommitRun {
        /// Operations of each coordinator.
        operations: u64 => 1.0..=1e9,
        /// Independent runs of each point.
        replications: u64 => 1.0..=1000.0,
    }
}

impl CommitParameters {
    /// The time of a write of that many bytes.
    pub fn write_time(&self, bytes: u64) -> Duration {
        let seconds = self.log.latency_us / 1e6 + bytes as f64 / (self.log.bandwidth_kb_s * 1e3);
        Duration::from_secs_f64(seconds)
    }

    pub fn message_time(&self) -> Duration {
        Duration::from_secs_f64(self.network.latency_us / 1e6)
    }

    pub fn processor_time(&self) -> Duration {
        Duration::from_secs_f64(self.workload.message_us / 1e6)
    }

    pub fn object_time(&self) -> Duration {
        Duration::from_secs_f64(self.workload.object_us / 1e6)
    }

    /// One operation alone on two servers, with these times of a write and of a message, and no others.
    pub fn of_one_operation(&self, write: Duration, message: Duration) -> CommitParameters {
        let mut one = self.clone();
        one.system.servers = 2;
        one.system.placement = Placement::Other;
        one.workload = CommitWorkload {
            coordinators: Coordinators::First,
            outstanding: 1,
            directories: 1,
            object_us: 0.0,
            message_us: 0.0,
        };
        one.log = CommitLog {
            bandwidth_kb_s: 1e12,
            latency_us: write.as_nanos() as f64 / 1e3,
            record_bytes: 0,
            update_bytes: 0,
            queue: LogQueue::One,
            unforced: Unforced::Carried,
        };
        one.network.latency_us = message.as_nanos() as f64 / 1e3;
        one.run.operations = 1;
        one
    }
}

impl Named for CommitParameters {
    fn check_together(&self) -> Result<(), ParameterError> {
        let wrong = |text: &str| Err(ParameterError::Together(text.to_string()));
        if self.system.grouping != Grouping::None && self.log.queue == LogQueue::None {
            return wrong(
                "records share a write only if writes wait for each other: set log.queue=one, or system.grouping=none",
            );
        }
        Ok(())
    }
}
