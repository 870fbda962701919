"""What a suite is: case files, their expansion, checks of answers, and confirmed refusals."""
