//! Random durations and numbers, drawn from a seed.

use braid_base::Rng;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Sampler {
    rng: Rng,
    /// Normal numbers are generated in pairs; this is the second of the last pair.
    spare: Option<f64>,
}

impl Sampler {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Sampler {
        Sampler { rng: Rng::new(seed), spare: None }
    }

    /// A uniform number from 0 up to 1, exclusive.
    pub fn fraction(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A uniform number.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.fraction()
    }

    /// A uniform whole number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    /// True with this probability. If the result is certain, nothing is drawn.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && (probability >= 1.0 || self.fraction() < probability)
    }

    /// A normal number (Box and Muller), negative ones replaced by zero.
    pub fn normal(&mut self, mean: f64, deviation: f64) -> f64 {
        if deviation == 0.0 {
            return mean;
        }
        let standard = self.spare.take().unwrap_or_else(|| {
            let radius = (-2.0 * (1.0 - self.fraction()).ln()).sqrt();
            let angle = std::f64::consts::TAU * self.fraction();
            self.spare = Some(radius * angle.sin());
            radius * angle.cos()
        });
        (mean + deviation * standard).max(0.0)
    }

    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.fraction()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_mean_and_deviation_asked_for() {
        let mut sampler = Sampler::new(1);
        let drawn: Vec<f64> = (0..100_000).map(|_| sampler.normal(80.0, 10.0)).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let variance = drawn.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / drawn.len() as f64;
        assert!((mean - 80.0).abs() < 0.2 && (variance.sqrt() - 10.0).abs() < 0.2, "{mean} {variance}");
        let exponential: f64 = (0..100_000).map(|_| sampler.exponential(5.0)).sum::<f64>() / 100_000.0;
        assert!((exponential - 5.0).abs() < 0.1, "{exponential}");
    }
}
