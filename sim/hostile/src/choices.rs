//! Choices: each is made by a random source, or by the next bytes that a fuzzer gives.

use braid_base::Rng;

/// A source of choices.
#[derive(Clone, Debug)]
pub struct Choices(Source);

#[derive(Clone, Debug)]
enum Source {
    Seed(Rng),
    Bytes { bytes: Vec<u8>, at: usize },
}

impl Choices {
    /// Endless choices, which follow from a seed.
    pub fn of_seed(seed: u64) -> Choices {
        Choices(Source::Seed(Rng::new(seed)))
    }

    /// The choices that these bytes make. When they are used up, the first possibility is chosen always.
    pub fn of_bytes(bytes: &[u8]) -> Choices {
        Choices(Source::Bytes { bytes: bytes.to_vec(), at: 0 })
    }

    /// True if no choice is left.
    pub fn is_used_up(&self) -> bool {
        matches!(&self.0, Source::Bytes { bytes, at } if *at >= bytes.len())
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        match &mut self.0 {
            Source::Seed(rng) => rng.below(bound),
            Source::Bytes { bytes, at } => {
                let wanted = if bound <= 256 { 1 } else { 8 };
                let rest = bytes.get(*at..).unwrap_or_default();
                let taken = &rest[..wanted.min(rest.len())];
                *at += wanted;
                taken.iter().rev().fold(0u64, |number, byte| number << 8 | u64::from(*byte)) % bound
            }
        }
    }

    pub fn any(&mut self) -> u64 {
        self.below(u64::MAX)
    }

    /// True in `per_cent` of all cases.
    pub fn chance(&mut self, per_cent: u64) -> bool {
        // The first possibility is the usual one.
        self.below(100) >= 100 - per_cent
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len() as u64) as usize]
    }
}
