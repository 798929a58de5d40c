//! `properties::known_hosts` for any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../ssh-config-parser/tests/support/properties.rs"]
#[allow(dead_code, reason = "each target uses one of the two")]
mod properties;

fuzz_target!(|data: &[u8]| properties::known_hosts(data));
