//! Which key a request uses.

use super::random::Random;

/// How a request's key is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum KeyChoice {
    /// All keys are equally likely.
    Uniform,
    /// Key number k, from 0, has a probability proportional to 1 / (k + 1) to the power of this exponent.
    Zipf(f64),
    /// One key after another, then again from the first.
    Sequential,
}

/// One thread's source of key numbers.
pub(crate) struct Keys {
    count: u64,
    choice: Choice,
}

enum Choice {
    Uniform,
    Zipf(Zipf),
    /// Each thread takes every `step`-th key, so that together they take all keys in order.
    Sequential {
        next: u64,
        step: u64,
    },
}

impl Keys {
    pub(crate) fn new(choice: KeyChoice, count: u64, thread: usize, threads: usize) -> Self {
        let choice = match choice {
            KeyChoice::Uniform => Choice::Uniform,
            KeyChoice::Zipf(exponent) => Choice::Zipf(Zipf::new(count, exponent)),
            KeyChoice::Sequential => {
                Choice::Sequential { next: thread as u64 % count, step: threads as u64 % count }
            }
        };
        Self { count, choice }
    }

    pub(crate) fn choose(&mut self, random: &mut Random) -> u64 {
        match &mut self.choice {
            Choice::Uniform => random.below(self.count),
            // Beyond 2^53 keys the last ones are lost to rounding.
            Choice::Zipf(zipf) => (zipf.draw(random) - 1).min(self.count - 1),
            Choice::Sequential { next, step } => {
                let key = *next;
                // Both are below the count, but their sum may overflow.
                *next = ((u128::from(key) + u128::from(*step)) % u128::from(self.count)) as u64;
                key
            }
        }
    }
}

/// Draws from 1 to n with a probability proportional to 1/k^s, by the rejection-inversion of W. Hörmann and G.
/// Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", ACM Transactions
/// on Modeling and Computer Simulation 6(3), 1996. Each draw takes the same few steps however many keys there
/// are, any exponent above 0 works, and no table is precomputed.
///
/// The area under the hat h(x) = x^-s from k - 1/2 to k + 1/2 belongs to k. The hat is convex, so this area is at
/// least h(k): a point is drawn from the whole area, and drawn again if it lies beyond the first h(k) of its
/// part.
struct Zipf {
    exponent: f64,
    count: f64,
    /// The integral of the hat where drawing begins: the part of 1 is exactly h(1), so it is never rejected.
    area_start: f64,
    /// The integral of the hat where drawing ends.
    area_end: f64,
    /// A point at most this far below its k is accepted without computing the area.
    accepted_below: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf =
            Self { exponent, count: count as f64, area_start: 0.0, area_end: 0.0, accepted_below: 0.0 };
        zipf.area_start = zipf.integral(1.5) - 1.0;
        zipf.area_end = zipf.integral(zipf.count + 0.5);
        zipf.accepted_below = 2.0 - zipf.inverse_integral(zipf.integral(2.5) - zipf.hat(2.0));
        zipf
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_end + random.unit() * (self.area_start - self.area_end);
            let x = self.inverse_integral(area);
            let k = x.round().clamp(1.0, self.count);
            if k - x <= self.accepted_below || area >= self.integral(k + 0.5) - self.hat(k) {
                return k as u64;
            }
        }
    }

    fn hat(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the hat from 1 to `x`: (x^(1-s) - 1) / (1 - s), written such that it stays exact when the
    /// exponent is 1 or close to it, where it becomes ln x.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        log * ratio_to(f64::exp_m1, (1.0 - self.exponent) * log)
    }

    fn inverse_integral(&self, area: f64) -> f64 {
        // Rounding may lead slightly below -1, where the logarithm is undefined.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (area * ratio_to(f64::ln_1p, scaled)).exp()
    }
}

/// `function(x) / x` for a function that is 0 with a slope of 1 at 0.
fn ratio_to(function: fn(f64) -> f64, x: f64) -> f64 {
    if x.abs() < 1e-12 { 1.0 } else { function(x) / x }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(choice: KeyChoice, count: u64, draws: usize) -> Vec<u64> {
        let (mut keys, mut random) = (Keys::new(choice, count, 0, 1), Random::new(7));
        (0..draws).map(|_| keys.choose(&mut random)).collect()
    }

    /// The worst deviation of a key's frequency from its probability: a million draws from a hundred keys.
    fn worst_deviation(exponent: f64) -> f64 {
        let weights: Vec<f64> = (1..=100).map(|k| f64::from(k).powf(-exponent)).collect();
        let total: f64 = weights.iter().sum();
        let mut counts = [0.0; 100];
        for key in draw(KeyChoice::Zipf(exponent), 100, 1_000_000) {
            counts[key as usize] += 1.0;
        }
        let deviations = counts.iter().zip(&weights).map(|(count, weight)| {
            let expected = 1e6 * weight / total;
            (count - expected).abs() / expected.sqrt()
        });
        deviations.fold(0.0, f64::max)
    }

    #[test]
    fn zipf_draws_each_key_as_often_as_its_rank_implies() {
        for exponent in [0.2, 0.5, 0.99, 1.0, 1.01, 1.5, 3.0] {
            let deviation = worst_deviation(exponent);
            assert!(deviation < 4.5, "exponent {exponent}: {deviation:.1} standard deviations");
        }
    }

    #[test]
    fn zipf_stays_among_the_keys() {
        for (count, exponent) in
            [(1, 1.0), (2, 0.01), (u64::MAX, 0.01), (u64::MAX, 1.0), ((1 << 60) - 1, 0.01), (1 << 40, 20.0)]
        {
            let keys = draw(KeyChoice::Zipf(exponent), count, 1000);
            assert!(keys.iter().all(|key| *key < count), "{count} keys, exponent {exponent}");
        }
    }

    #[test]
    fn sequential_threads_take_every_key_in_turn_together() {
        let mut random = Random::new(1);
        let mut threads = [0, 1].map(|thread| Keys::new(KeyChoice::Sequential, 5, thread, 2));
        let drawn: Vec<u64> = (0..10).map(|position| threads[position % 2].choose(&mut random)).collect();
        assert_eq!(drawn, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn there_may_be_more_threads_than_keys() {
        let mut keys = Keys::new(KeyChoice::Sequential, 2, 3, 4);
        let mut random = Random::new(1);
        assert!((0..8).all(|_| keys.choose(&mut random) < 2));
    }
}
