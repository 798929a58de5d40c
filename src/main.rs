//! The `towline` program: the command line face of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(feature = "demo")]
    if let Some(code) = towline::demo::batch::called() {
        return code;
    }
    towline::cli::run()
}
