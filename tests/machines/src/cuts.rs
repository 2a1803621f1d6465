//! Links between two machines that drop packets, in one direction or in both; and whether two monitors granted leases meanwhile.

use crate::{Machine, Machines};
use std::collections::BTreeMap;

/// A former leader may grant for the doubt, a second and a tenth. Lines of logs are written a little later.
const GRANTS_AFTER_MAX: f64 = 1.5;
const DAY: f64 = 86_400.0;

impl Machine {
    /// Drops what it sends to the other one.
    pub fn cut(&self, other: &Machine) {
        let chain = "add table inet cut; add chain inet cut out { type filter hook output priority 0; }";
        let rule = format!("{chain}; add rule inet cut out ip daddr {} drop", other.address);
        self.place.run(&["nft", &rule]).done();
    }

    /// Sends to all again.
    pub fn mend(&self) {
        self.place.run(&["nft", "flush ruleset"]).done();
    }

    /// When its monitor has granted leases to devices, in seconds of the day, and in which terms.
    fn grants(&self) -> Vec<(f64, u64)> {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let grants = log.lines().filter_map(|line| {
            let (time, term) = (line.split_once('T')?.1.split_once('Z')?.0, line.split_once("a lease in term ")?.1);
            let seconds = time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))?;
            Some((seconds, term.trim().parse().ok()?))
        });
        grants.collect()
    }
}

impl Machines {
    /// No monitor has granted leases in a term after another one had begun to in a later one, but for the doubt. Returns the number of terms.
    #[track_caller]
    pub fn assert_one_grants(&self) -> usize {
        let mut terms: BTreeMap<u64, (usize, Vec<f64>)> = BTreeMap::new();
        for (index, machine) in self.all.iter().enumerate() {
            for (time, term) in machine.grants() {
                let (leader, times) = terms.entry(term).or_insert((index, Vec::new()));
                assert_eq!(*leader, index, "two monitors have granted in term {term}");
                times.push(time);
            }
        }
        assert!(!terms.is_empty(), "the monitors log what they grant");
        let of: Vec<(&u64, &Vec<f64>)> = terms.iter().map(|(term, (_, times))| (term, times)).collect();
        for pair in of.windows(2) {
            let ((before, last), (after, first)) =
                ((pair[0].0, pair[0].1[pair[0].1.len() - 1]), (pair[1].0, pair[1].1[0]));
            // Midnight may lie between them.
            let late = (last - first + 1.5 * DAY) % DAY - DAY / 2.0;
            assert!(late < GRANTS_AFTER_MAX, "term {before} granted {late:.2} s after term {after} had begun to");
        }
        terms.len()
    }
}
