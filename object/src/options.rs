//! Sizes, counts and times of a device.

use std::time::Duration;

/// How an [`ObjectDevice`](crate::ObjectDevice) makes its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// bytes of a part of an upload; files up to this size are stored by one put. Stores take parts
    /// of 5 MiB and more, and at most 10,000 of them. Default: 8 MiB
    pub part_bytes: usize,
    /// parts that are uploaded at the same time, of all files together. Default: 4
    pub parts_in_flight: usize,
    /// the most attempts of an operation. Default: 5
    pub attempts: u32,
    /// until an attempt counts as failed. Default: 30 s
    pub request_timeout: Duration,
    /// until an operation has failed, whatever attempts are left. Default: 90 s
    pub operation_timeout: Duration,
    /// the pause before the second attempt, doubled for each further one; a random part of it, at
    /// most half, is left out. Default: 100 ms
    pub pause: Duration,
    /// the longest pause. Default: 5 s
    pub pause_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            part_bytes: 8 << 20,
            parts_in_flight: 4,
            attempts: 5,
            request_timeout: Duration::from_secs(30),
            operation_timeout: Duration::from_secs(90),
            pause: Duration::from_millis(100),
            pause_max: Duration::from_secs(5),
        }
    }
}
