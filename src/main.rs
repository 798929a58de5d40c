//! The `towline` program: the command line face of the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    towline::cli::run()
}
