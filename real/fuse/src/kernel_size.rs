//! What the kernel takes for the size of a file, by which its pages end. It can't be asked for it, and discards the attributes in an answer if
//! it was told to drop pages after it asked: so the size is known by two bounds.

/// The bounds. At first, nothing is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelSize {
    at_least: u64,
    at_most: u64,
    /// It is being told that the file is so long.
    lengthening: Option<u64>,
}

impl Default for KernelSize {
    fn default() -> KernelSize {
        KernelSize { at_least: 0, at_most: u64::MAX, lengthening: None }
    }
}

impl KernelSize {
    pub fn at_least(&self) -> u64 {
        self.at_least
    }

    pub fn at_most(&self) -> u64 {
        self.at_most
    }

    /// Attributes are answered. `is_learned`: the kernel was told nothing else since it asked.
    pub fn told(&mut self, size: u64, is_learned: bool) {
        self.lengthening = self.lengthening.map(|lengthening| lengthening.min(size));
        (self.at_least, self.at_most) = match is_learned {
            true => (size, size),
            false => (self.at_least.min(size), self.at_most.max(size)),
        };
    }

    /// A program on this mount has written up to here. An append may end elsewhere: the kernel adds to what it takes for the end.
    pub fn wrote(&mut self, end: u64) {
        self.at_most = self.at_most.max(end);
    }

    /// The kernel learns from a short answer that the file ends here.
    pub fn ended(&mut self, size: u64) {
        self.at_least = self.at_least.min(size);
        self.at_most = self.at_most.min(size);
    }

    /// The last byte is about to be stored.
    pub fn begin_lengthening(&mut self, size: u64) {
        self.at_most = self.at_most.max(size);
        self.lengthening = self.lengthening.max(Some(size));
    }

    /// Whether it was stored is not known: nobody has waited for it.
    pub fn give_up_lengthening(&mut self) {
        self.lengthening = None;
    }

    /// It is stored. What was answered meanwhile may be what the kernel knows.
    pub fn end_lengthening(&mut self) {
        self.at_least = self.at_least.max(self.lengthening.take().unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_hold_whether_the_kernel_takes_an_answer_or_discards_it() {
        let mut size = KernelSize::default();
        size.told(100, false);
        assert_eq!((size.at_least(), size.at_most()), (0, u64::MAX));
        size.told(100, true);
        size.begin_lengthening(200);
        assert_eq!((size.at_least(), size.at_most()), (100, 200));
        size.end_lengthening();
        assert_eq!(size.at_least(), 200);
        size.told(50, false);
        assert_eq!((size.at_least(), size.at_most()), (50, 200), "it may have been discarded");
        size.wrote(300);
        size.ended(250);
        assert_eq!((size.at_least(), size.at_most()), (50, 250));
        size.begin_lengthening(400);
        size.told(60, false);
        size.end_lengthening();
        assert_eq!((size.at_least(), size.at_most()), (60, 400), "the answer may have come after the byte");
    }
}
