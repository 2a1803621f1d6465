//! Tests of the shapes of figures 3 to 8, at the precision of `--quick`.

use super::*;
use crate::testing::Results;

const SPREAD: &str = STARTS[0].0;
const CLOSER: &str = STARTS[1].0;
const AT_ONCE: &str = STARTS[2].0;

fn results(experiment: &Experiment) -> Results {
    results_of(experiment, |_| true)
}

fn results_of(experiment: &Experiment, keep: impl Fn(&Point) -> bool) -> Results {
    Results::of(experiment, Thoroughness::Quick, 2, "", keep)
}

/// The times at these horizontal values.
fn times(of: &Results, panel: &str, series: &str, values: [f64; 3]) -> [f64; 3] {
    values.map(|x| of.value(panel, series, x, "latency_ms"))
}

const COUNTS: [f64; 3] = [4.0, 8.0, 16.0];

fn within(tolerance: f64, values: &[f64]) -> bool {
    let most = values.iter().copied().fold(0.0, f64::max);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    most <= (1.0 + tolerance) * least
}

#[test]
fn new_locks_cost_the_same_in_both_modes_and_no_callback() {
    let [one, four] = [&FIGURE_3, &FIGURE_4].map(results);
    for figure in [&one, &four] {
        for (panel, _) in STARTS {
            let [exclusive, shared] = MODES.map(|mode| times(figure, panel, mode, COUNTS));
            let alike = exclusive.iter().zip(shared).all(|(one, other)| within(0.05, &[*one, other]));
            assert!(alike, "both modes: {panel} {exclusive:?} {shared:?}");
            for (mode, x) in MODES.into_iter().flat_map(|mode| COUNTS.map(|x| (mode, x))) {
                assert_eq!(figure.value(panel, mode, x, "callbacks_per_op"), 0.0, "{panel} {mode} {x}");
                assert_eq!(figure.value(panel, mode, x, "messages_per_op"), 2.0, "{panel} {mode} {x}");
            }
        }
    }
    for panel in [SPREAD, CLOSER] {
        let times = [&one, &four].map(|figure| times(figure, panel, "exclusive", COUNTS)).concat();
        assert!(within(0.2, &times), "neither clients nor GLMs matter while GLMs have little to do: {panel} {times:?}");
    }
    // What the paper does not show: the GLM that serves 16 requests at once has a queue, and four GLMs have shorter ones.
    let [of_one, of_four] = [&one, &four].map(|figure| times(figure, AT_ONCE, "exclusive", COUNTS));
    assert!(of_one[2] > 1.5 * of_one[0] && of_four[2] < 0.75 * of_one[2], "{of_one:?} {of_four:?}");
}

#[test]
fn locks_of_neighbours_are_called_back_if_they_are_exclusive() {
    let [one, four] = [&FIGURE_5, &FIGURE_6].map(results);
    for figure in [&one, &four] {
        for (panel, _) in STARTS {
            let [exclusive, shared] = MODES.map(|mode| times(figure, panel, mode, COUNTS));
            let above = exclusive.iter().zip(shared).all(|(exclusive, shared)| *exclusive > 1.3 * shared);
            assert!(above, "exclusive locks take longer: {panel} {exclusive:?} {shared:?}");
            for x in COUNTS {
                assert_eq!(figure.value(panel, "exclusive", x, "callbacks_per_op"), 1.0, "{panel} {x}");
                assert_eq!(figure.value(panel, "exclusive", x, "messages_per_op"), 4.0, "{panel} {x}");
                assert_eq!(figure.value(panel, "shared", x, "callbacks_per_op"), 0.0, "{panel} {x}");
            }
            assert!(exclusive[2] > exclusive[0], "exclusive rises: {panel} {exclusive:?}");
            assert!(panel == AT_ONCE || within(0.2, &shared), "shared does not rise: {panel} {shared:?}");
        }
    }
    for panel in [CLOSER, AT_ONCE] {
        let [of_one, of_four] = [&one, &four].map(|figure| times(figure, panel, "exclusive", COUNTS));
        assert!(of_one[0] < 0.8 * of_one[2], "one GLM has more to do for more clients: {panel} {of_one:?}");
        assert!(of_four[2] < 0.75 * of_one[2], "four GLMs share the work: {panel} {of_four:?} {of_one:?}");
    }
}

#[test]
fn clients_of_one_node_share_its_locks() {
    let per_node = [1.0, 2.0, 4.0];
    for figure in [&FIGURE_7, &FIGURE_8].map(results) {
        for (panel, _) in STARTS {
            let callbacks = per_node.map(|x| figure.value(panel, "exclusive", x, "callbacks_per_op"));
            assert_eq!(callbacks, [1.0, 0.5, 0.25], "{panel}");
            for mode in MODES {
                let falling = times(&figure, panel, mode, per_node);
                assert!(falling.windows(2).all(|pair| pair[1] < 0.7 * pair[0]), "{panel} {mode}: {falling:?}");
            }
        }
    }
}

#[test]
fn foresight_saves_messages_in_sequences_and_strides() {
    let figure = results(&WIDENING);
    for (panel, most) in [("pieces that follow each other", 0.8), ("pieces among those of others", 0.7)] {
        for pieces in [1.0, 4.0, 16.0] {
            let messages = |series| figure.value(panel, series, pieces, "messages_per_op");
            assert_eq!(messages("as requested"), 2.0, "{panel}");
            let foresight = messages("with foresight");
            assert!(foresight <= if pieces == 16.0 { most } else { 2.0 }, "{panel}: {foresight} for {pieces} pieces");
        }
    }
}

#[test]
fn callbacks_to_node_groups_reach_an_eighth_of_the_nodes() {
    let figure = results(&GROUPS);
    for clients in [8.0, 16.0, 64.0] {
        for (series, called) in [("holder", 1.0), ("node group", clients / 8.0)] {
            let value = |metric| figure.value("", series, clients, metric);
            assert_eq!((value("callbacks_per_op"), value("messages_per_op")), (called, called + 3.0), "{clients}");
        }
    }
}

#[test]
fn only_the_first_of_many_that_promote_keeps_its_lock() {
    let figure = results(&PROMOTIONS);
    for clients in [2.0, 16.0, 64.0] {
        let value = |metric| figure.value("", "exclusive", clients, metric);
        assert_eq!(value("kept_fraction"), 1.0 / clients, "one of {clients}");
        assert!(value("callbacks_per_op") <= 2.0, "{clients}: each share, and each lock, is called back once");
    }
}

#[test]
fn today_the_shapes_are_the_same_and_a_hundredth_as_long() {
    let figure = results(&TODAY);
    for panel in ["25 Gb/s", "100 Gb/s"] {
        let time = |series, clients| figure.value(panel, series, clients, "latency_ms");
        let [new, shared, exclusive] =
            ["new locks, 1 GLM", "neighbours' locks, shared", "exclusive, 1 GLM"].map(|series| time(series, 4.0));
        assert!(within(0.1, &[new, shared]) && exclusive > 1.7 * new, "{panel}: {new} {shared} {exclusive}");
        assert!(new < 0.06 && exclusive < 0.12, "{panel}: {new} {exclusive}");
    }
}

#[test]
fn writing_back_is_paid_by_who_wants_the_lock() {
    let figure = results(&WRITING_BACK);
    let [without, with] = ["not counted", "counted"].map(|series| times(&figure, "", series, COUNTS));
    let more = [0, 1, 2].map(|at| with[at] - without[at]);
    assert!(more.iter().all(|more| (80.0..100.0).contains(more)), "84 ms more: {more:?}");
}

#[test]
fn delayed_acknowledgements_hold_back_callbacks_only() {
    let panel = "acknowledgements of TCP";
    let figure = results_of(&ASSUMPTIONS, |point| point.panel == panel);
    let times = |series| [0.0, 1.0].map(|x| figure.value(panel, series, x, "latency_ms"));
    for series in ["new locks, 1 GLM", "neighbours' locks, shared"] {
        assert!(within(0.02, &times(series)), "{series}: {:?}", times(series));
    }
    let [without, with] = times("exclusive, 1 GLM");
    assert!((10.0..40.0).contains(&(with - without)), "a part of 40 ms: {without} {with}");
}
