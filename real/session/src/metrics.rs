//! Metrics: counters by name.

use std::collections::BTreeMap;

/// Counters since the start of a process, or within an interval. A counter that is missing, because an older program does not have it,
/// is unknown rather than zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics(BTreeMap<String, u64>);

impl Metrics {
    /// The value of a counter, if known.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// The sum of some counters, if all are known.
    pub fn total(&self, names: &[&str]) -> Option<u64> {
        names.iter().map(|name| self.get(name)).sum()
    }

    /// The sum of some counters, divided by `count`; none if a counter is unknown or `count` is zero or unknown.
    pub fn per(&self, names: &[&str], count: Option<u64>) -> Option<f64> {
        ratio(self.total(names)?, count?)
    }

    /// The counters by name, as a lease contains them.
    pub fn into_map(self) -> BTreeMap<String, u64> {
        self.0
    }

    pub fn add(&mut self, other: &Metrics) {
        for (name, value) in &other.0 {
            *self.0.entry(name.clone()).or_default() += value;
        }
    }

    /// The increase since `before`; none if a counter decreased, which happens when its process was restarted. Only names that
    /// `counted` accepts are compared, because sizes may decrease.
    pub fn since(&self, before: &Metrics, counted: impl Fn(&str) -> bool) -> Option<Metrics> {
        let both = self.0.iter().filter(|(name, _)| counted(name));
        let both = both.filter_map(|(name, now)| Some((name, now, before.get(name)?)));
        both.map(|(name, now, before)| Some((name.clone(), now.checked_sub(before)?))).collect()
    }
}

impl<N: Into<String>> FromIterator<(N, u64)> for Metrics {
    fn from_iter<T: IntoIterator<Item = (N, u64)>>(values: T) -> Metrics {
        Metrics(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

/// `part / whole`; none if `whole` is zero.
pub fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_figures_are_left_out_and_not_zero() {
        let counts = Metrics::from_iter([("a", 3), ("b", 0)]);
        assert_eq!(counts.total(&["a", "b"]), Some(3));
        assert_eq!(counts.total(&["a", "c"]), None);
        assert_eq!(counts.per(&["a"], counts.get("b")), None, "the divisor is zero");
        assert_eq!(counts.per(&["a"], Some(2)), Some(1.5));
    }

    #[test]
    fn a_span_has_what_was_counted_in_it_and_a_fall_is_noticed() {
        let before = Metrics::from_iter([("a", 3), ("size", 9)]);
        let after = Metrics::from_iter([("a", 5), ("size", 1), ("new", 1)]);
        assert_eq!(after.since(&before, |name| name != "size"), Some(Metrics::from_iter([("a", 2)])));
        assert_eq!(after.since(&before, |_| true), None);
    }
}
