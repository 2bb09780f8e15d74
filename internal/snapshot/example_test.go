package snapshot_test

import (
	"bytes"
	"fmt"

	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

func Example() {
	var b bytes.Buffer
	if err := snapshot.Write(&b, "lockstep/lease", 1, []byte(`{"leases":[]}`)); err != nil {
		fmt.Println(err)
	}
	image := b.Bytes()
	body, err := snapshot.Read(bytes.NewReader(image), "lease: restore", "lockstep/lease", 1)
	fmt.Println(string(body), err)
	_, err = snapshot.Read(bytes.NewReader(image), "gang: restore", "lockstep/gang", 1)
	fmt.Println(err)
	_, err = snapshot.Read(bytes.NewReader(image[:len(image)-1]), "lease: restore", "lockstep/lease", 1)
	fmt.Println(err)
	// Output:
	// {"leases":[]} <nil>
	// gang: restore: format = "lockstep/lease": want "lockstep/gang"
	// lease: restore: snapshot: is cut short or changed: its checksum differs
}
