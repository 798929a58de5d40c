//! Whatever the route guard reads from outside: netlink's datagrams, programs' output, settings files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towline::route::{macos, netlink, parse_connection, parse_settings};

fuzz_target!(|data: &[u8]| {
    netlink::read_everything(data);
    let Ok(text) = std::str::from_utf8(data) else { return };
    // What comes out does not matter; whole answers are judged by the unit tests.
    drop((parse_settings(text), parse_connection(text)));
    drop((macos::parse_route(text), macos::parse_interface("utun4", text)));
});
