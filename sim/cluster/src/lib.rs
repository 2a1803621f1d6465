//! A whole array inside a simulated world, its workload and its scenarios.
