"""What prepares input for iogate and reads its output."""
