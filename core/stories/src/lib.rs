//! Tests of machines that are told as stories: tables of calls, each with what follows from it. Here are the tables, the loop that compares,
//! and the words that all stories share. What else a call may say, and how answers are shown, belongs to the tests of each machine.

use braid_base::{Generation, MemberState};
use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

/// Tests that are stories, each told by a function: calls, and after `=>` what follows from them, if something does.
#[macro_export]
macro_rules! stories {
    ($tell:path; $($(#[$meta:meta])* fn $name:ident(): $($call:literal $(=> $found:literal)?;)+)+) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            $tell(&[$(($call, concat!($($found)?))),+]);
        }
    )+ };
}

/// A machine with all that a story says around it.
pub trait Told: Sized {
    /// Executes a call. Returns what follows from it, as far as it has not been shown yet.
    fn call(&mut self, text: &str) -> Vec<String>;

    fn goes_on(&mut self, parts: &[(&str, &str)]) {
        for (index, (call, expected)) in parts.iter().enumerate() {
            assert_eq!(self.call(call).join(", "), *expected, "{index}: {call}");
        }
    }

    /// The story after these parts.
    fn told(mut self, parts: &[(&str, &str)]) -> Self {
        self.goes_on(parts);
        self
    }
}

pub fn number_of<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}

/// A time, such as `250ms`, `3s` or `1h`.
pub fn span_of(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_alphabetic()).expect("a unit"));
    let number: u64 = number_of(number);
    match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "h" => Duration::from_secs(3_600 * number),
        _ => panic!("not a time: {text}"),
    }
}

/// A device and its state, such as `2:out`, or `2:returning7` if host 7 coordinates its recovery.
pub fn state_of(text: &str) -> (u16, MemberState) {
    let (number, state) = text.split_once(':').expect("a device and its state");
    let state = match state {
        "in" => MemberState::In,
        "out" => MemberState::Out,
        _ => {
            let host = state.strip_prefix("returning").unwrap_or_else(|| panic!("not a state: {text}"));
            let recovery_coordinator = (!host.is_empty()).then(|| Generation(number_of(host)));
            MemberState::Returning { recovery_coordinator }
        }
    };
    (number_of(number), state)
}

pub fn yes_or_no(value: bool) -> Vec<String> {
    vec![if value { "yes" } else { "no" }.into()]
}

/// The name of an enum's variant.
pub fn first_word(value: &impl Debug) -> String {
    format!("{value:?}").chars().take_while(|letter| letter.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Echo;

    impl Told for Echo {
        fn call(&mut self, text: &str) -> Vec<String> {
            text.split(' ').filter(|word| *word != "nothing").map(str::to_string).collect()
        }
    }

    fn echo(parts: &[(&str, &str)]) {
        Echo.told(parts);
    }

    stories! {
        echo;

        #[should_panic(expected = "1: two")]
        fn a_story_is_compared_part_by_part():
            "one" => "one";
            "two" => "three";

        #[should_panic(expected = "0: one")]
        fn a_call_without_an_answer_expects_none():
            "one";

        fn an_answer_lists_all_that_follows():
            "nothing";
            "one two" => "one, two";
    }
}
