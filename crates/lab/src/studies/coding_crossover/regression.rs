//! Response time as a function of bandwidth and size: ridge regression, and where two such surfaces cross.
//!
//! The study fits a surface over bandwidth and size. Its text does not name the terms; its notebook does, and they are
//! fitted here in the same way. In addition, there are the terms of the model that the paper's own equations describe:
//! a fixed part, a part for each byte, and a part for each byte on the network, which is size over bandwidth.

/// One measured time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) mbit: f64,
    pub(crate) bytes: f64,
    pub(crate) ms: f64,
}

/// The terms of a surface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// The study's: bandwidth, size and their product, as in its benchmark/benchmark_regression.ipynb, lines 440 to
    /// 456. Lines of equal bandwidth, and of equal size, are straight.
    Plane,
    /// Size, and size over bandwidth.
    Physical,
}

impl Terms {
    fn of(self, mbit: f64, bytes: f64) -> Vec<f64> {
        let megabytes = bytes / 1e6;
        match self {
            Terms::Plane => vec![mbit, megabytes, mbit * megabytes],
            Terms::Physical => vec![megabytes, megabytes * 8.0 / mbit],
        }
    }

    /// How strongly coefficients are shrunk towards zero: 1 in the study. The physical terms need none, except a tiny
    /// amount that keeps the equations solvable.
    fn ridge(self) -> f64 {
        match self {
            Terms::Plane => 1.0,
            Terms::Physical => 1e-9,
        }
    }

    /// The weight of a sample. Times differ by powers of ten: with equal weights the shortest would have no influence.
    fn weight(self, ms: f64) -> f64 {
        match self {
            Terms::Plane => 1.0,
            Terms::Physical => 1.0 / (ms * ms).max(1e-6),
        }
    }
}

/// A fitted surface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fit {
    terms: Terms,
    constant: f64,
    coefficients: Vec<f64>,
    /// The share of the variance that the fit explains.
    pub(crate) r_squared: f64,
    /// The median of |residual| / measured.
    pub(crate) error_median: f64,
    /// The maximum of |residual| / measured.
    pub(crate) error_max: f64,
}

impl Fit {
    /// Fits a surface; `None` when there are fewer samples than coefficients.
    pub(crate) fn of(terms: Terms, samples: &[Sample]) -> Option<Fit> {
        let rows: Vec<Vec<f64>> = samples.iter().map(|sample| terms.of(sample.mbit, sample.bytes)).collect();
        let width = rows.first()?.len();
        if samples.len() <= width {
            return None;
        }
        let weights: Vec<f64> = samples.iter().map(|sample| terms.weight(sample.ms)).collect();
        let total: f64 = weights.iter().sum();
        let mean = |value: &dyn Fn(usize) -> f64| {
            (0..samples.len()).map(|index| weights[index] * value(index)).sum::<f64>() / total
        };
        // Each term is scaled by its own spread, so that the ridge shrinks all alike, and not the constant.
        let means: Vec<f64> = (0..width).map(|term| mean(&|index| rows[index][term])).collect();
        let spreads: Vec<f64> = (0..width)
            .map(|term| {
                mean(&|index| (rows[index][term] - means[term]).powi(2)).sqrt().max(f64::MIN_POSITIVE)
            })
            .collect();
        let ms_mean = mean(&|index| samples[index].ms);
        let scaled = |index: usize, term: usize| (rows[index][term] - means[term]) / spreads[term];
        let mut equations = vec![vec![0.0; width + 1]; width];
        for (line, equation) in equations.iter_mut().enumerate() {
            for (column, entry) in equation.iter_mut().enumerate().take(width) {
                let ridge = if line == column { terms.ridge() / samples.len() as f64 } else { 0.0 };
                *entry = mean(&|index| scaled(index, line) * scaled(index, column)) + ridge;
            }
            equation[width] = mean(&|index| scaled(index, line) * (samples[index].ms - ms_mean));
        }
        let solution = solve(equations)?;
        let coefficients: Vec<f64> =
            solution.iter().zip(&spreads).map(|(coefficient, spread)| coefficient / spread).collect();
        let at_means: f64 =
            coefficients.iter().zip(&means).map(|(coefficient, mean)| coefficient * mean).sum();
        let mut fit = Fit {
            terms,
            constant: ms_mean - at_means,
            coefficients,
            r_squared: 0.0,
            error_median: 0.0,
            error_max: 0.0,
        };
        fit.judge(samples);
        Some(fit)
    }

    fn judge(&mut self, samples: &[Sample]) {
        let mean = samples.iter().map(|sample| sample.ms).sum::<f64>() / samples.len() as f64;
        let variance: f64 = samples.iter().map(|sample| (sample.ms - mean).powi(2)).sum();
        let residuals: Vec<f64> =
            samples.iter().map(|sample| sample.ms - self.ms(sample.mbit, sample.bytes)).collect();
        let left: f64 = residuals.iter().map(|residual| residual.powi(2)).sum();
        self.r_squared = if variance > 0.0 { 1.0 - left / variance } else { 0.0 };
        let mut errors: Vec<f64> =
            residuals.iter().zip(samples).map(|(residual, sample)| (residual / sample.ms).abs()).collect();
        errors.sort_by(f64::total_cmp);
        self.error_median = errors[errors.len() / 2];
        self.error_max = errors[errors.len() - 1];
    }

    /// The predicted time in milliseconds.
    pub(crate) fn ms(&self, mbit: f64, bytes: f64) -> f64 {
        let terms = self.terms.of(mbit, bytes);
        self.constant + terms.iter().zip(&self.coefficients).map(|(term, weight)| term * weight).sum::<f64>()
    }

    /// For the physical terms: milliseconds for each write; milliseconds for each megabyte; and how many times each
    /// byte of a value passes the network's bottleneck.
    pub(crate) fn physical(&self) -> Option<(f64, f64, f64)> {
        match (self.terms, &self.coefficients[..]) {
            (Terms::Physical, [per_megabyte, per_second]) => {
                Some((self.constant, *per_megabyte, per_second / 1e3))
            }
            _ => None,
        }
    }
}

/// Where two surfaces cross for a size: the bandwidth, within a range, up to which the first takes no longer than the
/// second.
pub(crate) fn boundary(first: &Fit, second: &Fit, bytes: f64, (from, to): (f64, f64)) -> Crossing {
    const STEPS: u32 = 400;
    let is_faster = |mbit: f64| first.ms(mbit, bytes) <= second.ms(mbit, bytes);
    let at = |step: u32| from * (to / from).powf(f64::from(step) / f64::from(STEPS));
    if !is_faster(from) {
        return Crossing::Never;
    }
    let Some(step) = (1..=STEPS).find(|step| !is_faster(at(*step))) else { return Crossing::Always };
    let (mut low, mut high) = (at(step - 1), at(step));
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if is_faster(middle) { low = middle } else { high = middle }
    }
    Crossing::At(low)
}

/// The bandwidth up to which something is faster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Crossing {
    /// Not even at the lowest bandwidth.
    Never,
    /// Up to this bandwidth.
    At(f64),
    /// Up to the highest bandwidth.
    Always,
}

/// Solves linear equations, each a line followed by its right side, by elimination with pivoting. `None` if they have
/// no unique solution.
fn solve(mut lines: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = lines.len();
    for column in 0..count {
        let pivot = (column..count)
            .max_by(|left, right| lines[*left][column].abs().total_cmp(&lines[*right][column].abs()))?;
        lines.swap(column, pivot);
        if lines[column][column].abs() < 1e-14 {
            return None;
        }
        let (above, below) = lines.split_at_mut(column + 1);
        let pivot = &above[column];
        for line in below {
            let factor = line[column] / pivot[column];
            for (entry, taken) in line.iter_mut().zip(pivot) {
                *entry -= factor * taken;
            }
        }
    }
    let mut solution = vec![0.0; count];
    for line in (0..count).rev() {
        let known: f64 = (line + 1..count).map(|column| lines[line][column] * solution[column]).sum();
        solution[line] = (lines[line][count] - known) / lines[line][line];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's 25 conditions with times that follow a known law.
    fn samples(law: impl Fn(f64, f64) -> f64) -> Vec<Sample> {
        let mbits = [10.0, 25.0, 40.0, 55.0, 70.0];
        let sizes = [200e3, 400e3, 600e3, 800e3, 1000e3];
        let all = mbits.iter().flat_map(|mbit| sizes.map(|bytes| (*mbit, bytes)));
        all.map(|(mbit, bytes)| Sample { mbit, bytes, ms: law(mbit, bytes) }).collect()
    }

    /// A fixed time in milliseconds, milliseconds for each megabyte, and how many times a byte is sent.
    fn law(fixed: f64, megabyte: f64, times: f64) -> impl Fn(f64, f64) -> f64 {
        move |mbit, bytes| fixed + megabyte * bytes / 1e6 + times * bytes * 8.0 / mbit / 1e3
    }

    #[test]
    fn equations_are_solved_and_those_without_a_solution_refused() {
        let lines = vec![vec![0.0, 2.0, 4.0], vec![3.0, -1.0, 1.0]];
        assert_eq!(solve(lines), Some(vec![1.0, 2.0]));
        assert_eq!(solve(vec![vec![1.0, 2.0, 1.0], vec![2.0, 4.0, 1.0]]), None);
    }

    #[test]
    fn a_law_of_the_models_kind_is_found_again() {
        let fit = Fit::of(Terms::Physical, &samples(law(3.0, 20.0, 4.0))).unwrap();
        let (fixed, megabyte, times) = fit.physical().unwrap();
        assert!((fixed - 3.0).abs() < 1e-3 && (megabyte - 20.0).abs() < 1e-2 && (times - 4.0).abs() < 1e-4);
        assert!(fit.r_squared > 0.999_999 && fit.error_max < 1e-4, "{fit:?}");
        assert!((fit.ms(1.0, 200e3) - (3.0 + 4.0 + 6400.0)).abs() < 1.0, "also beyond what was measured");
    }

    #[test]
    fn a_plane_fits_such_a_law_badly_and_reports_it() {
        let fit = Fit::of(Terms::Plane, &samples(law(3.0, 20.0, 4.0))).unwrap();
        assert!((0.6..0.9).contains(&fit.r_squared), "{fit:?}");
        assert!(fit.error_max > 0.2, "{fit:?}");
        let flat = Fit::of(Terms::Plane, &samples(|_, bytes| bytes / 1e4)).unwrap();
        assert!(
            flat.r_squared > 0.98,
            "what is a plane is nearly found, the ridge takes its share: {flat:?}"
        );
    }

    /// The mean times of the study's own 25 conditions, from benchmark/results_store/_final, one row for each
    /// bandwidth, and the results of its notebook (benchmark/benchmark_regression.ipynb, line 404).
    #[test]
    fn the_studys_own_surfaces_are_found_again() {
        const CODED: [[f64; 5]; 5] = [
            [701.9, 1349.9, 1992.4, 2640.4, 3282.2],
            [347.6, 616.7, 879.8, 1145.7, 1401.2],
            [275.5, 457.9, 636.5, 805.2, 975.9],
            [253.4, 402.4, 543.6, 669.4, 787.7],
            [241.7, 374.0, 496.0, 598.6, 702.0],
        ];
        const COPIED: [[f64; 5]; 5] = [
            [1065.7, 2110.2, 3140.5, 5703.4, 6856.5],
            [427.3, 846.0, 1265.0, 1671.1, 2081.7],
            [266.7, 526.9, 790.6, 1035.3, 1287.5],
            [193.3, 381.1, 570.4, 747.6, 932.2],
            [151.3, 296.5, 445.9, 579.8, 722.9],
        ];
        for (times, expected) in [(CODED, 0.780), (COPIED, 0.729)] {
            let place = |from: f64, step: f64, value: f64| ((value - from) / step) as usize;
            let law = |mbit: f64, bytes: f64| times[place(10.0, 15.0, mbit)][place(200e3, 200e3, bytes)];
            let fit = Fit::of(Terms::Plane, &samples(law)).unwrap();
            assert!((fit.r_squared - expected).abs() < 0.0006, "{fit:?}");
        }
    }

    #[test]
    fn too_few_samples_make_no_surface() {
        assert_eq!(Fit::of(Terms::Plane, &samples(law(1.0, 1.0, 1.0))[..3]), None);
        assert_eq!(Fit::of(Terms::Physical, &[]), None);
    }

    #[test]
    fn surfaces_cross_where_both_take_equally_long() {
        let fit = |fixed, times| Fit::of(Terms::Physical, &samples(law(fixed, 0.0, times))).unwrap();
        let (copies, coded) = (fit(3.0, 4.0), fit(11.0, 2.0));
        // 8 ms more, but 2 times the value less to send: 2 times 500 KB are 8 Mbit, which take 8 ms at 1000 Mbit/s.
        match boundary(&coded, &copies, 500e3, (1.0, 1e4)) {
            Crossing::At(mbit) => assert!((mbit / 1000.0 - 1.0).abs() < 1e-2, "{mbit}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(boundary(&coded, &copies, 500e3, (1.0, 100.0)), Crossing::Always);
        assert_eq!(boundary(&coded, &copies, 500e3, (2000.0, 1e4)), Crossing::Never);
    }
}
