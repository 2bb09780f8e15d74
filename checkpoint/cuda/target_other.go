//go:build !linux

package cuda

import "errors"

const supported = false

func look(int) (process, bool, error) { return process{}, false, errors.ErrUnsupported }

func frozen(int) bool { return false }

func selfPID() (int, bool) { return 0, false }

func maps(int) (string, error) { return "", errors.ErrUnsupported }

func available() (int64, bool) { return 0, false }

func release(string) int { return 0 }
