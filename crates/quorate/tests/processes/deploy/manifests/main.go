// Reads rendered manifests as the API server of Kubernetes does: refuses a field that the kind does not have, a field that
// occurs twice, and a value of another type. Prints the objects as an array of JSON.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	strict "sigs.k8s.io/yaml"
)

// Kinds that Kubernetes has only with other programs: their fields are not known here.
var extensions = map[string]bool{"monitoring.coreos.com/v1 ServiceMonitor": true}

func main() {
	objects, err := read(os.Stdin)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(objects)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func read(manifests io.Reader) ([]json.RawMessage, error) {
	objects := []json.RawMessage{}
	documents := yaml.NewYAMLReader(bufio.NewReader(manifests))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		// Helm begins each document with the name of its template.
		source, _, _ := bytes.Cut(document, []byte("\n"))
		object, err := strict.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		// A template that renders nothing leaves comments.
		if string(object) == "null" {
			continue
		}
		if err := check(object); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		objects = append(objects, object)
	}
}

func check(object []byte) error {
	codecs := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict)
	_, kind, err := codecs.UniversalDeserializer().Decode(object, nil, nil)
	if runtime.IsNotRegisteredError(err) && extensions[kind.GroupVersion().String()+" "+kind.Kind] {
		return nil
	}
	return err
}
