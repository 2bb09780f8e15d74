package checkpointtest

import (
	"errors"
	"strings"
)

func errorIs(err, kind error) bool { return errors.Is(err, kind) }

func cmpText[T ~string](a, b T) int { return strings.Compare(string(a), string(b)) }
