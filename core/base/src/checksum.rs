//! CRC32C (Castagnoli), the checksum of frames, journal records and blocks.

pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
    }
}
