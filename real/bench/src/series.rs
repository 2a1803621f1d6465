//! Runs of several sides in rounds, in which each side is measured once, and the comparison of sides.

use crate::prelude::*;
use braid_benchkit::statistics::median;
use indicatif::ProgressBar;

/// Runs that belong together: of one side, or of sides that are measured in turns. `F` is what a run measures.
pub struct Series<S, F> {
    pub sides: Vec<S>,
    /// In order of time.
    pub runs: Vec<Run<F>>,
}

pub struct Run<F> {
    /// The index of the side.
    pub side: usize,
    /// Runs of the same round are compared.
    pub round: usize,
    pub figures: F,
}

/// One metric of a side and of another one, over all rounds.
pub struct Comparison {
    /// The medians.
    pub own: f64,
    pub other: f64,
    /// Own to other.
    pub ratio: Ratio,
}

pub struct Turn<'a, S> {
    /// The index of the series.
    pub series: usize,
    /// The index of the side in its series.
    pub index: usize,
    pub side: &'a S,
    pub round: usize,
}

/// Measures every side of every series in each round. The rounds begin with the sides in turn, so that other activity on the machine affects all
/// of them.
pub async fn in_rounds<S, F>(
    all: &mut [Series<S, F>],
    rounds: usize,
    progress: &ProgressBar,
    mut measure: impl AsyncFnMut(Turn<'_, S>) -> Result<F, Failure>,
) -> Result<(), Failure> {
    for round in 0..rounds {
        for (number, series) in all.iter_mut().enumerate() {
            for turn in 0..series.sides.len() {
                let side = (round + turn) % series.sides.len();
                let turn = Turn { series: number, index: side, side: &series.sides[side], round };
                let figures = measure(turn).await?;
                series.runs.push(Run { side, round, figures });
                progress.inc(1);
            }
        }
    }
    Ok(())
}

impl<S, F> Series<S, F> {
    pub fn new(sides: Vec<S>) -> Series<S, F> {
        Series { sides, runs: Vec::new() }
    }

    /// Removes the runs of rounds of which a side is missing, as after an interruption. Returns the number of runs that remain.
    pub fn keep_complete(&mut self) -> usize {
        let Series { sides, runs } = self;
        let has_all = |round: usize| runs.iter().filter(|run| run.round == round).count() == sides.len();
        let complete: Vec<bool> = runs.iter().map(|run| has_all(run.round)).collect();
        let mut complete = complete.into_iter();
        runs.retain(|_| complete.next() == Some(true));
        runs.len()
    }

    pub fn rounds(&self) -> usize {
        self.runs.iter().map(|run| run.round + 1).max().unwrap_or(0)
    }

    pub fn of_side(&self, side: usize) -> impl Iterator<Item = &Run<F>> {
        self.runs.iter().filter(move |run| run.side == side)
    }

    pub fn values(&self, side: usize, metric: impl Fn(&F) -> Option<f64>) -> Vec<f64> {
        self.of_side(side).filter_map(|run| metric(&run.figures)).collect()
    }

    /// The median of a metric of one side; none if it is unknown.
    pub fn median(&self, side: usize, metric: impl Fn(&F) -> Option<f64>) -> Option<f64> {
        median(&self.values(side, metric))
    }

    /// Compares a side with another one. None unless both have values.
    pub fn compare(&self, own: usize, other: usize, metric: impl Fn(&F) -> Option<f64>) -> Option<Comparison> {
        let value = |side: usize, round: usize| {
            self.of_side(side).find(|run| run.round == round).and_then(|run| metric(&run.figures))
        };
        let of_round = |run: &Run<F>| value(own, run.round).zip(value(other, run.round));
        // A round without a value has no ratio, like one whose reference is zero.
        let ratio = Ratio::of(self.of_side(other).map(|run| of_round(run).unwrap_or_default()));
        Some(Comparison { own: self.median(own, &metric)?, other: self.median(other, &metric)?, ratio })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(f64, f64)]) -> Series<(), f64> {
        let of = |side: usize, round: usize, figures: f64| Run { side, round, figures };
        let runs = values.iter().enumerate().flat_map(|(round, (a, b))| [of(1, round, *b), of(0, round, *a)]);
        Series { sides: vec![(), ()], runs: runs.collect() }
    }

    #[test]
    fn each_ratio_is_taken_within_its_round() {
        // The machine becomes slower over time, but B is always ten per cent faster than its A.
        let values: Vec<_> = (1..=10).map(|speed| (f64::from(speed), f64::from(speed) * 1.1)).collect();
        let found = series(&values).compare(1, 0, |value| Some(*value)).unwrap();
        let near = |value: f64| (value - 1.1).abs() < 1e-9;
        let interval = found.ratio.interval.unwrap();
        assert!(near(found.ratio.median.unwrap()) && near(interval.low) && near(interval.high));
        assert_eq!((found.other, found.ratio.rounds), (5.5, 10));
    }

    #[test]
    fn a_reference_of_zero_gives_no_ratio() {
        let found = series(&[(0.0, 1.0), (1.0, 1.0)]).compare(1, 0, |value| Some(*value)).unwrap();
        assert_eq!((found.ratio.median, found.ratio.interval, found.own), (None, None, 1.0));
        assert!(series(&[(1.0, 1.0)]).compare(1, 0, |_| None).is_none(), "an unknown metric is not compared");
    }

    #[test]
    fn an_incomplete_round_is_removed() {
        let mut interrupted = series(&[(1.0, 2.0), (3.0, 4.0)]);
        interrupted.runs.pop();
        assert_eq!((interrupted.keep_complete(), interrupted.rounds()), (2, 1));
        assert_eq!(interrupted.values(0, |value| Some(*value)), [1.0]);
    }

    #[tokio::test]
    async fn the_rounds_begin_with_the_sides_in_turn() {
        let mut all = [Series::new(vec!['a', 'b', 'c']), Series::new(vec!['d'])];
        let measure = async |turn: Turn<'_, char>| Ok(*turn.side);
        in_rounds(&mut all, 3, &ProgressBar::hidden(), measure).await.expect("nothing fails");
        let order = all.each_ref().map(|series| series.runs.iter().map(|run| run.figures).collect::<String>());
        assert_eq!(order, ["abcbcacab", "ddd"]);
    }
}
