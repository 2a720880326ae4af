//! Turns for jobs: what a program, or a library in its process, asks before and after its bulk I/O.
