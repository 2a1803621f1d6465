//! Who may send a message to whom, and over which connection.
//!
//! Nodes are not authenticated. What a node does not say by its kind is refused at the connection, before any state machine sees it:
//! a device never fences a host, and what comes in over a connection that others have made is never the monitor's answer.

use crate::message::Message;
use crate::monitoring::MonitorCommand;
use braid_base::NodeId;

impl Message {
    /// True if a node of the sender's kind sends such messages to nodes of the receiver's kind.
    pub fn is_allowed(&self, from: NodeId, to: NodeId) -> bool {
        use NodeId::{Device, Host, LockServer, MetadataServer, Monitor};
        match self {
            Message::Request(_) => matches!((from, to), (Host(_), Device(_))),
            Message::Answer(_) => matches!((from, to), (Device(_), Host(_))),
            Message::LockRequest(_) => matches!((from, to), (Host(_), LockServer(_) | MetadataServer(_))),
            Message::LockAnswer(_) => matches!((from, to), (LockServer(_) | MetadataServer(_), Host(_))),
            Message::MonitorRequest(request) => match (from, to) {
                (Host(_), Monitor) => true,
                (Device(_), Monitor) => matches!(request.command, MonitorCommand::Renew { .. }),
                (LockServer(_), Monitor) => {
                    matches!(request.command, MonitorCommand::Renew { .. } | MonitorCommand::Fence { .. })
                }
                _ => false,
            },
            Message::MonitorAnswer(_) => matches!((from, to), (Monitor, Host(_) | Device(_) | LockServer(_))),
            Message::Partial(_) => matches!((from, to), (Device(_), Device(_))),
            Message::FileRequest(_) => matches!((from, to), (Host(_), MetadataServer(_))),
            Message::FileAnswer(_) => matches!((from, to), (MetadataServer(_), Host(_))),
            Message::Shard(_) => matches!((from, to), (MetadataServer(_), MetadataServer(_))),
        }
    }

    /// True if the node that has made a connection sends this message over it, false if the node that has accepted it does.
    pub fn is_by_caller(&self) -> bool {
        match self {
            Message::Request(_)
            | Message::LockRequest(_)
            | Message::MonitorRequest(_)
            | Message::Partial(_)
            | Message::FileRequest(_)
            | Message::Shard(_) => true,
            Message::Answer(_) | Message::LockAnswer(_) | Message::MonitorAnswer(_) | Message::FileAnswer(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitoring::{MonitorAnswer, MonitorReply, MonitorRequest};
    use crate::{Command, Partial, Request};
    use braid_base::{
        Clock, DeviceId, Epoch, FileSystemId, Generation, Level, LockServerId, ObjectId, Time, TransactionId,
    };

    const HOST: NodeId = NodeId::Host(Generation(3));
    const DEVICE: NodeId = NodeId::Device(DeviceId(1));
    const LOCKS: NodeId = NodeId::LockServer(LockServerId(0));
    const FILES: NodeId = NodeId::MetadataServer(FileSystemId(1));
    const ALL: [NodeId; 5] = [HOST, DEVICE, LOCKS, FILES, NodeId::Monitor];

    fn pairs(message: &Message) -> Vec<(NodeId, NodeId)> {
        let all = ALL.into_iter().flat_map(|from| ALL.into_iter().map(move |to| (from, to)));
        all.filter(|(from, to)| message.is_allowed(*from, *to)).collect()
    }

    fn to_monitor(command: MonitorCommand) -> Message {
        Message::MonitorRequest(MonitorRequest { epoch: Epoch(1), command })
    }

    #[test]
    fn only_hosts_send_requests_to_devices_and_only_devices_partials() {
        let request = Message::Request(Request {
            host: Generation(3),
            epoch: Epoch(1),
            settled: 0,
            over: Vec::new(),
            commits: Vec::new(),
            command: Command::Heartbeat,
        });
        assert_eq!(pairs(&request), [(HOST, DEVICE)]);
        let transaction = TransactionId { host: Generation(3), sequence: 1 };
        let partial = Partial { epoch: Epoch(1), transaction, object: ObjectId(1), pieces: Vec::new() };
        let partial = Message::Partial(partial);
        assert_eq!(pairs(&partial), [(DEVICE, DEVICE)]);
        assert!(request.is_by_caller() && partial.is_by_caller());
    }

    #[test]
    fn a_device_can_only_renew_and_a_lock_server_also_fence() {
        let renew = to_monitor(MonitorCommand::Renew {
            sent: Time(1),
            silent: Vec::new(),
            disk: None,
            bad_slots: 0,
            failing: false,
            undecided: Vec::new(),
            stamps: Clock(0),
            knows: Level::KNOWN,
            holder: None,
        });
        let (except, also) = (Vec::new(), Vec::new());
        let fence = to_monitor(MonitorCommand::Fence { ticket: 1, below: Generation(9), except, also });
        let complete = to_monitor(MonitorCommand::Resynchronised { device: DeviceId(1), since: Epoch(1) });
        let to = NodeId::Monitor;
        assert_eq!(pairs(&renew), [(HOST, to), (DEVICE, to), (LOCKS, to)]);
        assert_eq!(pairs(&fence), [(HOST, to), (LOCKS, to)]);
        assert_eq!(pairs(&complete), [(HOST, to)]);
    }

    #[test]
    fn the_monitors_answers_come_from_the_monitor_over_a_connection_to_it() {
        let answer = MonitorAnswer { membership: None, unavailable: Vec::new(), reply: MonitorReply::Changed };
        let answer = Message::MonitorAnswer(answer);
        let from = NodeId::Monitor;
        assert_eq!(pairs(&answer), [(from, HOST), (from, DEVICE), (from, LOCKS)]);
        assert!(!answer.is_by_caller());
    }
}
