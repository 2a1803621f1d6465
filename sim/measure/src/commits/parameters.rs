//! All numbers that determine a run of the experiments on commit protocols. The file with comments is
//! `sim/experiments/parameters/one-phase-commit.toml`.

use crate::named::{Limit, Named, ParameterError, limit};
use braid_commit::Protocol;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The parameters of a run. Together with the seed they determine it completely.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitParameters {
    pub system: CommitServers,
    pub workload: CommitWorkload,
    pub log: CommitLog,
    pub network: CommitNetwork,
    pub run: CommitRun,
}

/// The metadata servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitServers {
    pub servers: u64,
    pub protocol: ProtocolName,
    /// Where the file of a directory's entry is.
    pub placement: Placement,
    /// What shares a write of the log, or a transaction.
    pub grouping: Grouping,
    /// The most operations in one transaction.
    pub group_max: u64,
}

/// A protocol by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProtocolName {
    #[serde(rename = "prn")]
    PresumeNothing,
    #[serde(rename = "prc")]
    PresumeCommit,
    #[serde(rename = "ep")]
    EarlyPrepare,
    #[serde(rename = "1pc")]
    OnePhase,
}

impl ProtocolName {
    pub fn protocol(self) -> Protocol {
        match self {
            ProtocolName::PresumeNothing => Protocol::PresumeNothing,
            ProtocolName::PresumeCommit => Protocol::PresumeCommit,
            ProtocolName::EarlyPrepare => Protocol::EarlyPrepare,
            ProtocolName::OnePhase => Protocol::OnePhase,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the next server: each operation spans two servers, if there are two.
    Other,
    /// On any server, with the same chance.
    Anywhere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Grouping {
    /// Each record is a write of its own.
    None,
    /// Records that wait while a write is under way share the next one.
    Log,
    /// The same; and operations that wait for a directory, with their files on the same server, become one transaction.
    Operations,
}

/// The steps of clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitWorkload {
    /// Whether only the first server coordinates, or each.
    pub coordinators: Coordinators,
    /// Operations that each coordinator's clients have outstanding.
    pub outstanding: u64,
    /// Directories of each coordinator. An operation changes one of them, under its lock.
    pub directories: u64,
    /// The processor's time to compute an update of one object.
    pub object_us: f64,
    /// The processor's time to send a message, and to receive one.
    pub message_us: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Coordinators {
    First,
    Each,
}

/// The log of a server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitLog {
    pub bandwidth_kb_s: f64,
    /// The time of a write, besides that of its bytes.
    pub latency_us: f64,
    /// Bytes of each record.
    pub record_bytes: u64,
    /// Bytes of the updates of one operation at one server. They are added to the record that makes them durable.
    pub update_bytes: u64,
    /// Whether writes of one server wait for each other.
    pub queue: LogQueue,
    /// What becomes of a record that nobody waits for.
    pub unforced: Unforced,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogQueue {
    /// One write at a time.
    One,
    /// Each write takes its time, however many are under way.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unforced {
    /// It is written at once, like others.
    Written,
    /// The next forced write carries it.
    Carried,
    /// It takes no time.
    Free,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitNetwork {
    /// The time of a message from one server to another.
    pub latency_us: f64,
}

/// The length of the measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitRun {
    /// Operations of each coordinator.
    pub operations: u64,
    /// Independent runs of each point.
    pub replications: u64,
}

const LIMITS: &[Limit] = &[
    limit(&["system.servers"], 1.0, 256.0),
    limit(&["system.group_max"], 1.0, 64.0),
    limit(&["workload.outstanding"], 1.0, 100_000.0),
    limit(&["workload.directories"], 1.0, 1e6),
    limit(&["workload.object_us", "workload.message_us"], 0.0, 1e6),
    limit(&["log.bandwidth_kb_s"], 0.1, 1e12),
    limit(&["log.latency_us", "log.record_bytes", "log.update_bytes"], 0.0, 1e6),
    limit(&["network.latency_us"], 0.0, 1e6),
    limit(&["run.operations"], 1.0, 1e9),
    limit(&["run.replications"], 1.0, 1000.0),
];

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
    const LIMITS: &'static [&'static [Limit]] = &[LIMITS];

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
