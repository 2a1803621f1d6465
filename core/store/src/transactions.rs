//! Transactions that are not over: undecided intents, and commits that must be remembered. Their bytes in a snapshot are counted.

use crate::block::Attribution;
use crate::journal_format::{Decision, IntentRecord};
use braid_base::{DeviceId, Generation, ObjectId, TransactionId};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default)]
pub(crate) struct Transactions {
    intents: BTreeMap<TransactionId, IntentRecord>,
    decisions: BTreeMap<TransactionId, Decision>,
    /// Bytes that the intents, and the commits, take in a snapshot.
    intent_bytes: u64,
    decision_bytes: u64,
}

impl Transactions {
    /// The undecided intents, by transaction.
    pub fn intents(&self) -> impl Iterator<Item = &IntentRecord> {
        self.intents.values()
    }

    /// The remembered commits, by transaction.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.values()
    }

    /// The number of undecided intents.
    pub fn undecided(&self) -> usize {
        self.intents.len()
    }

    /// The number of remembered commits.
    pub fn remembered(&self) -> usize {
        self.decisions.len()
    }

    /// Bytes that the undecided intents take in a snapshot.
    pub fn intent_bytes(&self) -> u64 {
        self.intent_bytes
    }

    /// Bytes that the undecided intents of one host take in a snapshot.
    pub fn intent_bytes_of(&self, host: Generation) -> u64 {
        let (first, last) = (TransactionId { host, sequence: 0 }, TransactionId { host, sequence: u64::MAX });
        self.intents.range(first..=last).map(|(_, intent)| intent.journal_len()).sum()
    }

    /// Bytes that intents and commits take in a snapshot.
    pub fn journal_len(&self) -> u64 {
        self.intent_bytes + self.decision_bytes
    }

    pub fn is_undecided(&self, transaction: TransactionId) -> bool {
        self.intents.contains_key(&transaction)
    }

    pub fn insert(&mut self, intent: IntentRecord) {
        self.intent_bytes += intent.journal_len();
        let before = self.intents.insert(intent.by.transaction, intent);
        assert!(before.is_none(), "a device prepares a transaction once, and replay skips what a snapshot repeats");
    }

    /// Replaces an intent by an equal one whose data is elsewhere in memory.
    pub fn replace(&mut self, intent: IntentRecord) {
        if let Some(held) = self.intents.get_mut(&intent.by.transaction) {
            *held = intent;
        }
    }

    /// Takes out an intent that is decided.
    pub fn take(&mut self, transaction: TransactionId) -> Option<IntentRecord> {
        let intent = self.intents.remove(&transaction)?;
        self.intent_bytes -= intent.journal_len();
        Some(intent)
    }

    /// Remembers a commit.
    pub fn remember(&mut self, by: Attribution, participants: Vec<DeviceId>, object: ObjectId) {
        self.forget(by.transaction);
        let decision = Decision { by, participants, object };
        self.decision_bytes += decision.journal_len();
        self.decisions.insert(by.transaction, decision);
    }

    /// All others that took part have the commit, too: this device, `own`, remembers it as if it had been alone. Returns what is
    /// remembered, if that is news.
    pub fn nobody_misses(&mut self, transaction: TransactionId, own: DeviceId) -> Option<&Decision> {
        let decision = self.decisions.get_mut(&transaction).filter(|decision| decision.participants != [own])?;
        self.decision_bytes -= decision.journal_len();
        decision.participants = vec![own];
        self.decision_bytes += decision.journal_len();
        Some(decision)
    }

    /// Forgets a commit. True if there was one.
    pub fn forget(&mut self, transaction: TransactionId) -> bool {
        let Some(decision) = self.decisions.remove(&transaction) else { return false };
        self.decision_bytes -= decision.journal_len();
        true
    }

    /// Forgets all commits of a host below this sequence. True if there were any.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> bool {
        let (from, below) = (TransactionId { host, sequence: 0 }, TransactionId { host, sequence });
        let mut any = false;
        while let Some((transaction, _)) = self.decisions.range(from..below).next() {
            any |= self.forget(*transaction);
        }
        any
    }
}
