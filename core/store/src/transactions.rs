//! Transactions that are not over: undecided intents, and decisions that may not yet be forgotten. What they take in a snapshot is counted.

use crate::block::Attribution;
use crate::record::{Decision, IntentRecord};
use braid_base::{DeviceId, Generation, ObjectId, TransactionId};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Transactions {
    intents: BTreeMap<TransactionId, IntentRecord>,
    decisions: BTreeMap<TransactionId, Decision>,
    /// What they take in the journal when they are carried on.
    intent_bytes: u64,
    decision_bytes: u64,
}

impl Transactions {
    /// The undecided ones, by name.
    pub fn intents(&self) -> impl Iterator<Item = &IntentRecord> {
        self.intents.values()
    }

    /// The committed ones, by name.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.decisions.values()
    }

    /// How many are undecided.
    pub fn undecided(&self) -> usize {
        self.intents.len()
    }

    /// How many committed ones are remembered.
    pub fn remembered(&self) -> usize {
        self.decisions.len()
    }

    /// Bytes that the undecided ones take in a snapshot.
    pub fn intent_bytes(&self) -> u64 {
        self.intent_bytes
    }

    /// Bytes that all take in a snapshot.
    pub fn journal_len(&self) -> u64 {
        self.intent_bytes + self.decision_bytes
    }

    pub fn is_undecided(&self, transaction: TransactionId) -> bool {
        self.intents.contains_key(&transaction)
    }

    pub fn insert(&mut self, intent: IntentRecord) {
        self.intent_bytes += intent.journal_len();
        let before = self.intents.insert(intent.by.transaction, intent);
        assert!(before.is_none(), "a transaction has one intent");
    }

    /// An intent is the same, and its data is somewhere else in memory.
    pub fn replace(&mut self, intent: IntentRecord) {
        if let Some(held) = self.intents.get_mut(&intent.by.transaction) {
            *held = intent;
        }
    }

    /// An intent is decided.
    pub fn take(&mut self, transaction: TransactionId) -> Option<IntentRecord> {
        let intent = self.intents.remove(&transaction)?;
        self.intent_bytes -= intent.journal_len();
        Some(intent)
    }

    /// A commit may not be forgotten.
    pub fn remember(&mut self, by: Attribution, participants: Vec<DeviceId>, object: ObjectId) {
        self.forget(by.transaction);
        let decision = Decision { by, participants, object };
        self.decision_bytes += decision.journal_len();
        self.decisions.insert(by.transaction, decision);
    }

    /// A commit may be forgotten. True if there was one.
    pub fn forget(&mut self, transaction: TransactionId) -> bool {
        let Some(decision) = self.decisions.remove(&transaction) else { return false };
        self.decision_bytes -= decision.journal_len();
        true
    }

    /// All commits of a host below this sequence may be forgotten. True if there were any.
    pub fn settle(&mut self, host: Generation, sequence: u64) -> bool {
        let (from, below) = (TransactionId { host, sequence: 0 }, TransactionId { host, sequence });
        let mut any = false;
        while let Some((transaction, _)) = self.decisions.range(from..below).next() {
            any |= self.forget(*transaction);
        }
        any
    }
}
