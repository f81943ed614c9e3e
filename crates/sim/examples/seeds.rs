//! Runs seeds of coded consensus and reports what fails: `seeds FIRST COUNT [trace]`.

fn main() {
    let trace = std::env::args().any(|word| word == "trace");
    let mut numbers = std::env::args().skip(1).filter_map(|number| number.parse::<u64>().ok());
    let (first, count) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(100));
    let settings =
        sim::Settings { protocol: Some(sim::Protocol::Consensus), coded: true, ..Default::default() };
    for seed in first..first + count {
        let report = sim::run(seed, &settings, trace);
        if let Some(failure) = report.failure {
            println!("seed {seed}: {:?} {}", failure.broken, failure.words);
        }
    }
}
