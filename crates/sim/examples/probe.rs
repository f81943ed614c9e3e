use std::time::Instant;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let (from, to): (u64, u64) = (args[1].parse().unwrap(), args[2].parse().unwrap());
    let protocol = args[3].parse().ok();
    let told = args.get(4).map(|s| s.as_str());
    let mut settings = sim::Settings { protocol, ..Default::default() };
    if told == Some("calm") { settings.calm = Some(sim::Calm { nodes: 5, rate: 100, seconds: 2000 }); }
    settings.length_ms_max = args.get(5).and_then(|s| s.parse().ok());
    if let Some(name) = args.get(6) {
        use protocol::planted::Fault::*;
        let all = [VisibleBeforeCommitted, OneAcknowledgementTooFew, GapNotNoticed, NoRecovery, UnknownToldAsRefused, TagWithoutWriter, ReadWithoutWriteBack, FixedQuorum, AnswerWithoutRefill, StaleAcknowledgement, TombstoneForgottenEarly, WriteWithoutLockCheck, ReadWithoutRepair, UnlockByNonOwner, SurplusLockKept, LockGrantedAfterRestart];
        let fault = *all.iter().find(|f| format!("{f:?}") == *name).unwrap();
        settings.planted = protocol::planted::Planted::one(fault);
        std::panic::set_hook(Box::new(|_| {}));
        let start = Instant::now();
        for seed in from..to {
            if let Some(f) = sim::run(seed, &settings, false).failure {
                println!("{name}: run {} {:.1} s {:?} {}", seed - from + 1, start.elapsed().as_secs_f64(), f.broken, f.words.lines().next().unwrap_or("").chars().take(160).collect::<String>());
                return;
            }
        }
        println!("{name}: NOT FOUND {} runs {:.1} s", to - from, start.elapsed().as_secs_f64());
        return;
    }
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let (mut us, mut ops, mut checked, mut counts, mut fails, mut turns, mut frames) = (0, 0, 0, sim::Counts::default(), 0, 0, 0);
    let mut seen = sim::Seen::default();
    for seed in from..to {
        let report = sim::run(seed, &settings, told == Some("told"));
        us += report.simulated_us; ops += report.operations(); checked += report.checked(); counts.merge(&report.counts);
        turns += report.turns; frames += report.frames;
        for s in report.seen.values() { seen.merge(s); }
        for line in &report.lines { println!("{line}"); }
        if told == Some("told") { println!("{:#?} digest {}", report.scenario, report.digest); }
        if let Some(f) = report.failure { fails += 1; println!("{seed}: {:?} {} {:?}", f.broken, f.words.chars().take(700).collect::<String>(), f.window_us); }
    }
    let wall = start.elapsed().as_secs_f64();
    println!("{fails} failures, {} runs, {} s, {ops} ops, {checked} checked, {turns} turns, {frames} frames, wall {wall:.2}, {:.0} sim s/s", to - from, us / 1_000_000, us as f64 / 1e6 / wall);
    println!("{seen:?}");
    for class in sim::Class::ALL { print!("{} {}, ", class.name(), counts.of(class)); }
    println!();
}
