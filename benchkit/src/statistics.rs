//! Means of independent replications with their confidence intervals.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// A mean and the half width of its 95 % confidence interval, which is missing if there is only one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    /// The half width of the 95 % confidence interval.
    pub ci95: Option<f64>,
}

impl Estimate {
    /// The estimate from independent values, of which there must be at least one.
    pub fn of(values: &[f64]) -> Estimate {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.len() < 2 {
            return Estimate { mean, ci95: None };
        }
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        let student = StudentsT::new(0.0, 1.0, count - 1.0).expect("two values have a degree of freedom");
        Estimate { mean, ci95: Some(student.inverse_cdf(0.975) * (variance / count).sqrt()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_students_table() {
        let estimate = Estimate::of(&[10.0, 12.0, 14.0, 16.0, 18.0]);
        assert_eq!(estimate.mean, 14.0);
        // t(4, 0.975) = 2.776, standard deviation 3.1623.
        assert!((estimate.ci95.unwrap() - 2.7764 * 10f64.sqrt() / 5f64.sqrt()).abs() < 1e-3);
        assert_eq!(Estimate::of(&[3.0]), Estimate { mean: 3.0, ci95: None });
    }
}
