use braid_cluster::Choices;
use braid_cluster::attack::Attack;
fn main() {
    let mut args = std::env::args().skip(1);
    let seed: u64 = args.next().unwrap().parse().unwrap();
    let runs: u64 = args.next().unwrap().parse().unwrap();
    let mut choices = Choices::default();
    for word in args {
        if let Some(word) = word.strip_prefix('-') {
            choices.without.push(word.parse().unwrap());
        } else {
            choices.also.push(word.parse().unwrap());
        }
    }
    let attack = Attack { seed, runs: Some(runs), until: None, choices, threads: None, keep_going: true };
    let outcome = attack.run(|_, _| ());
    for failure in &outcome.failures {
        println!("{}", failure.to_string().chars().take(420).collect::<String>());
    }
    println!("{} failures of {runs}", outcome.failures.len());
}
