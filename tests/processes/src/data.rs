//! Pseudo-random data.

use braid_base::Rng;

/// `length` pseudo-random bytes, determined by the seed.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let (mut rng, mut bytes) = (Rng::new(seed), vec![0; length.next_multiple_of(8)]);
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&rng.next_u64().to_le_bytes()));
    bytes.truncate(length);
    bytes
}

/// The seed of this run: `$BRAID_SEED`, or a new one. It is printed, so that the output of a failed test contains it.
pub fn seed() -> u64 {
    let fresh = || std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
    let seed = std::env::var("BRAID_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(fresh);
    eprintln!("BRAID_SEED={seed}");
    seed
}
