//! Messages to and from the monitor and the lock servers.

use super::Grammar;
use braid_base::{
    DeviceId, DiskId, Epoch, FenceTable, FileSystemId, Generation, Member, MemberState, Membership, NodeId, Ownership,
};
use braid_wire::{
    AdminError, Administration, HealingProgress, JoinRefused, LockAnswer, LockCommand, LockExtent, LockMode,
    LockRefusal, LockReply, LockRequest, LockTerm, MonitorAnswer, MonitorCommand, MonitorReply, MonitorRequest,
    OwnershipRefused, OwnershipRequest, RecoveryThrottle,
};
use std::time::Duration;

impl Grammar {
    pub(super) fn monitor_request(&mut self, from: NodeId) -> MonitorRequest {
        let epoch = self.epoch();
        let ticket = self.number(40);
        let command = match self.choices.below(12) {
            0..=5 => {
                let silent = if self.choices.chance(25) { self.devices() } else { Vec::new() };
                let disk = match from {
                    NodeId::Device(device) if !self.choices.chance(5) => Some(DiskId(100 + u64::from(device.0))),
                    NodeId::Device(_) => Some(self.disk()),
                    _ => None,
                };
                MonitorCommand::Renew {
                    sent: if self.choices.chance(90) { self.known.now.time } else { self.time() },
                    silent,
                    disk,
                    bad_slots: self.number(3) as u32,
                    failing: self.choices.chance(4),
                    undecided: self.generations(10),
                    stamps: self.clock(),
                }
            }
            6 => {
                let below = if self.choices.chance(30) { self.generation() } else { Generation(0) };
                MonitorCommand::Fence { ticket, below, except: self.generations(20), also: self.generations(20) }
            }
            7 => MonitorCommand::Resynchronised { device: self.device(), since: self.epoch() },
            8 => {
                let progress = HealingProgress { done: self.number(9), left: self.number(9), lost: self.number(9) };
                MonitorCommand::Healing { device: self.device(), progress }
            }
            9 => MonitorCommand::Administer { ticket, request: self.administration() },
            _ => {
                let file_system = FileSystemId(self.number(3) as u16);
                let request = match self.choices.below(3) {
                    0 => OwnershipRequest::Inquire,
                    1 => OwnershipRequest::TakeOver { from: self.ownership() },
                    _ => OwnershipRequest::Release { since: self.epoch() },
                };
                MonitorCommand::Ownership { ticket, file_system, request }
            }
        };
        MonitorRequest { epoch, command }
    }

    fn generations(&mut self, per_cent: u64) -> Vec<Generation> {
        if !self.choices.chance(per_cent) {
            return Vec::new();
        }
        (0..self.choices.below(4)).map(|_| self.generation()).collect()
    }

    fn ownership(&mut self) -> Ownership {
        let owner = if self.choices.chance(50) { Some(self.generation()) } else { None };
        Ownership { since: self.epoch(), owner }
    }

    fn administration(&mut self) -> Administration {
        let (device, disk, blocks) = (self.device(), self.disk(), self.number(1 << 20));
        match self.choices.below(8) {
            0 => Administration::Fail { device },
            1 => Administration::Readmit { device },
            2 => Administration::Replace { device, disk, blocks, lose: self.choices.chance(50) },
            3 => Administration::AddSpare { disk, blocks },
            4 => Administration::RemoveSpare { disk },
            5 => Administration::RecoveryThrottle(self.throttle()),
            6 => Administration::AddDevice { device, disk },
            _ => Administration::RemoveDevice { device },
        }
    }

    fn throttle(&mut self) -> RecoveryThrottle {
        let bytes_per_second = if self.choices.chance(20) { self.number(1 << 20) } else { 0 };
        RecoveryThrottle { bytes_per_second, share: self.number(100) as u8, paused: self.choices.chance(5) }
    }

    pub(super) fn monitor_answer(&mut self) -> MonitorAnswer {
        let membership = if self.choices.chance(15) { Some(self.membership()) } else { None };
        let unavailable = if self.choices.chance(10) { self.devices() } else { Vec::new() };
        let ticket = self.ticket();
        let reply = match self.choices.below(10) {
            0..=4 => MonitorReply::Lease {
                sent: self.time(),
                length: if self.choices.chance(90) {
                    Duration::from_secs(4)
                } else {
                    Duration::from_nanos(self.number(1 << 40))
                },
                throttle: self.throttle(),
                stamps: self.clock(),
            },
            5 => MonitorReply::Fenced { ticket },
            6 => MonitorReply::Changed,
            7 if self.choices.chance(50) => MonitorReply::JoinRefused(JoinRefused::OtherDisk { expected: self.disk() }),
            7 => MonitorReply::JoinRefused(JoinRefused::Used { epoch: self.epoch() }),
            8 => {
                let errors = [AdminError::NoSuchDevice, AdminError::NothingGained, AdminError::TooManyChanges];
                let at = self.choices.below(3) as usize;
                let result = if self.choices.chance(50) { Ok(()) } else { Err(errors[at].clone()) };
                MonitorReply::Administered { ticket, result }
            }
            _ => {
                let refused = if self.choices.chance(50) {
                    OwnershipRefused::Fenced
                } else {
                    OwnershipRefused::Differs(self.ownership())
                };
                let result = if self.choices.chance(50) { Ok(self.ownership()) } else { Err(refused) };
                MonitorReply::Ownership { ticket, result }
            }
        };
        MonitorAnswer { membership, unavailable, reply }
    }

    /// A membership that may follow the present one, as a rule.
    pub fn membership(&mut self) -> Membership {
        let epoch = if self.choices.chance(90) { Epoch(self.known.epoch.0.saturating_add(1)) } else { self.epoch() };
        let mut members = Vec::new();
        for device in 0..4 {
            if self.choices.chance(3) {
                continue;
            }
            let recovery_coordinator = if self.choices.chance(80) { Some(self.generation()) } else { None };
            let member_state = match self.choices.below(10) {
                0..=6 => MemberState::In,
                7 | 8 => MemberState::Returning { recovery_coordinator },
                _ => MemberState::Out,
            };
            let since = if self.choices.chance(60) { Epoch(1) } else { self.epoch() };
            members.push(Member { device: DeviceId(device), member_state, since });
        }
        if self.choices.chance(3) {
            members.reverse();
        }
        let mut fence = FenceTable::default();
        if self.choices.chance(10) {
            fence.also = self.generations(90).into_iter().collect();
        }
        if self.choices.chance(3) {
            fence.below = self.generation();
            fence.except = self.generations(50).into_iter().collect();
        }
        Membership { epoch, members, fence }
    }

    pub(super) fn lock_request(&mut self, host: Generation) -> LockRequest {
        let start = if self.choices.chance(90) { self.known.start } else { self.generation() };
        let dropped = if self.choices.chance(5) { self.lock_ids() } else { Vec::new() };
        let (lock_id, object) = (self.number(12), self.object());
        let command = match self.choices.below(10) {
            0 => LockCommand::Heartbeat,
            1..=5 => LockCommand::Lock { lock_id, object, extents: self.lock_extents(), term: self.term() },
            6 => LockCommand::LockOver { lock_id, object, extents: self.lock_extents(), over: self.lock_ids() },
            7 | 8 => LockCommand::Unlock { lock_id },
            _ => LockCommand::Yield { lock_ids: self.lock_ids() },
        };
        LockRequest { host, start, dropped, command }
    }

    fn lock_ids(&mut self) -> Vec<u64> {
        (0..self.choices.below(4)).map(|_| self.number(12)).collect()
    }

    fn term(&mut self) -> LockTerm {
        match self.choices.below(6) {
            0 | 1 => LockTerm::Transaction { impatient: self.choices.chance(50) },
            2..=4 => LockTerm::Cached,
            _ => LockTerm::Held { start: self.known.start, cached: self.choices.chance(50) },
        }
    }

    fn lock_extents(&mut self) -> Vec<LockExtent> {
        (0..1 + self.choices.below(3))
            .map(|_| LockExtent {
                position: if self.choices.chance(95) { self.choices.below(3) as u16 } else { self.number(1024) as u16 },
                range: self.range(),
                mode: self.choices.pick(&[LockMode::Shared, LockMode::Exclusive]),
            })
            .collect()
    }

    pub(super) fn lock_answer(&mut self) -> LockAnswer {
        let lock_id = self.ticket();
        let reply = match self.choices.below(8) {
            0 => LockReply::Heartbeat,
            1..=3 => LockReply::Granted { lock_id, waited: self.choices.chance(30) },
            4 => LockReply::Unlocked { lock_id },
            5 => LockReply::Revoke { lock_ids: (0..self.choices.below(4)).map(|_| self.ticket()).collect() },
            6 => {
                let refusal = self.choices.pick(&[LockRefusal::Timeout, LockRefusal::Busy, LockRefusal::Malformed]);
                LockReply::Refused { lock_id, refusal }
            }
            _ => LockReply::Rejected { rejection: self.rejection() },
        };
        let start = if self.choices.chance(90) { self.known.start } else { self.generation() };
        LockAnswer { start, reply }
    }
}
