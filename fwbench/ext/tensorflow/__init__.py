"""TensorFlow: the networks in Keras 3, called through `tf.function`."""
